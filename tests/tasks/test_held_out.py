"""States held out from training: those of the run's panels, including its variants'."""

from starpo.flows.presets import preset
from starpo.ragen.agents.evaluation.panel import excluded_states
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.envs.initial_states import fresh_env_seed
from starpo.ragen.envs.make import make
from starpo.tasks.held_out import held_out
from starpo.tasks.rollout import rollout
from starpo.tasks.warm_start import warm_start

LAKE = {"type": "frozen_lake", "size": 3, "min_distance": 1}
VARIANT = LAKE | {"frozen_probability": 0.7}
"""Lakes with more holes: different prompts, some of which training would draw too."""


def config(**overrides: object) -> StarPOConfig:
    return preset("smoke", {"environment": LAKE, "evaluation.num_prompts": 40, **overrides})


def starts(settings: StarPOConfig) -> set[str]:
    """Return the initial states of 200 training groups, drawn as the rollout draws them."""
    world, excluded = make(settings.environment), excluded_states(held_out(settings))
    states = set()
    for group in range(200):
        world.reset(seed=fresh_env_seed(settings.environment, 0, "environment", 0, group, excluded=excluded))
        states.add(world.state_digest())
    return states


def test_training_excludes_states_of_variant_panels() -> None:
    with_variant = config(**{"evaluation.variants": {"short": VARIANT}})
    short = held_out(with_variant)[1]
    assert short.excluded_digests & starts(config())  # without the variant in the settings, they overlap
    assert not short.excluded_digests & starts(with_variant)


def test_variant_changes_training_keys() -> None:
    """Held-out states determine which states are played, so the keys of warm start and rollout differ."""
    without, with_variant = config(), config(**{"evaluation.variants": {"short": VARIANT}})
    assert warm_start(without) != warm_start(with_variant)
    assert rollout(0, without, "0" * 32) != rollout(0, with_variant, "0" * 32)
