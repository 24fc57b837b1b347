"""Settings without effect are not part of stage keys."""

import pytest
from pydantic import ValidationError

from starpo.flows.presets import method, preset
from starpo.ragen.config.deepspeed_learner import DeepSpeedConfig
from starpo.ragen.config.update import UpdateConfig
from starpo.tasks.update import update

OTHER = "b" * 32


@pytest.mark.parametrize(
    ("settings", "idle"),
    [
        ({"minibatch_trajectories": 32}, {"num_minibatches": 7}),
        ({"advantage": "grpo"}, {"reward_placement": "trajectory_end"}),
        ({"advantage": "grpo"}, {"std_ddof": 1}),
        ({}, {"kl_estimator": "k1"}),
        ({}, {"kl_placement": "reward"}),
    ],
)
def test_idle_settings_not_in_key(settings, idle):
    assert UpdateConfig(**settings).effective() == UpdateConfig(**settings, **idle).effective()
    (name,) = idle
    acting = {"advantage_scale": "batch", "advantage": "gae", "minibatch_trajectories": 0, "kl_coefficient": 0.1}
    assert UpdateConfig(**{**acting, **idle}).effective()[name] == idle[name]


def test_other_learners_table_not_in_key():
    ranks = DeepSpeedConfig(num_ranks=4)
    assert UpdateConfig(deepspeed=ranks).effective() == UpdateConfig().effective()
    assert UpdateConfig(learner="deepspeed", deepspeed=ranks).effective()["deepspeed"]["num_ranks"] == 4


@pytest.mark.parametrize("advantage", ["gae", "bi_level_gae", "grpo_batch", "reinforce"])
def test_group_scale_needs_group_estimator(advantage):
    with pytest.raises(ValidationError, match=rf"'{advantage}' does not compare a trajectory with its group: set adv"):
        UpdateConfig(advantage=advantage, advantage_scale="group")


@pytest.mark.parametrize("scale", ["group", "batch"])
@pytest.mark.parametrize(
    ("advantage", "options"),
    [("istar", {}), ("maxrl", {}), ("gigpo", {"normaliser": "std"}), ("hgpo", {"normaliser": "std"})],
)
def test_standardised_advantages_not_scaled_again(advantage, options, scale):
    with pytest.raises(ValidationError, match=rf"'{advantage}' already divides .* set advantage_scale to 'none'"):
        UpdateConfig(advantage=advantage, advantage_options=options, advantage_scale=scale)
    UpdateConfig(advantage=advantage, advantage_options=options)
    if options:
        UpdateConfig(advantage=advantage, advantage_scale=scale)


@pytest.mark.parametrize("place", ["optimiser", "critic.optimiser"])
def test_muon_is_refused_with_deepspeed(place):
    muon = {"type": "muon"}
    settings = {"optimiser": muon} if place == "optimiser" else {"critic": {"optimiser": muon}}
    with pytest.raises(ValidationError, match=rf"update\.{place}\.type = 'muon' .* set it to 'adamw'"):
        UpdateConfig.model_validate({"learner": "deepspeed", **settings})
    UpdateConfig.model_validate({"learner": "deepspeed", "advantage": "grpo", "critic": {"optimiser": muon}})


def test_float16_is_refused_with_deepspeed():
    with pytest.raises(ValidationError, match=r"'float16' needs learner = 'torch': set it to 'bfloat16'"):
        UpdateConfig.model_validate({"learner": "deepspeed", "dtype": "float16"})
    UpdateConfig.model_validate({"dtype": "float16"})


def test_run_length_keyed_if_rate_falls():
    def key(iterations: int, **settings: object) -> str:
        config = preset("smoke", {"iterations": iterations, "update.optimiser.decay": "constant", **settings})
        return update(config, 0, OTHER, OTHER, {"turns": OTHER, "rewards": OTHER, "selection": OTHER}).key

    falling = {"update.prm.optimiser": {"learning_rate": 1e-4, "decay": "linear"}}
    assert key(10, **falling) == key(20, **falling)  # no such model is trained
    assert key(10, **falling, **method("istar")) != key(20, **falling, **method("istar"))
    critic = {"update.critic.optimiser.decay": "linear"}
    assert key(10, **critic) == key(20, **critic)
    assert key(10, **critic, **method("ppo")) != key(20, **critic, **method("ppo"))
