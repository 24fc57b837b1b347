"""Time of a run from a measured speed, by hand; the speed of a stored run gives the time that it took."""

import pytest

from starpo.flows.presets import preset
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.evidence.cost import in_words
from starpo.ragen.evidence.pace import pace_of
from starpo.ragen.sizing.hours import Pace, num_passes, num_played, run_seconds
from starpo.ragen.sizing.tokens import count_tokens
from starpo.ragen.store import Facts, Store
from starpo.schemas.manifest import Stage
from tests.examples import example

PACE = Pace(episode_s=0.5, pass_s=0.75, example_s=0.25)


def test_time_is_arithmetic() -> None:
    settings = {"iterations": 10, "evaluation.num_prompts": 32, "evaluation.every": 5, "filter.strategy": "none",
                "update.kl_coefficient": 0.0, "rollout.num_groups": 12, "rollout.group_size": 8}  # fmt: skip
    tuned = {"policy": {"type": "pretrained", "name_or_path": "nobody/none",
                        "fine_tuning": {"steps": 24, "batch_size": 16}}}  # fmt: skip
    seconds = run_seconds(preset("smoke", {**settings, **tuned}), PACE)
    assert seconds == {
        "fine-tuning": 24 * 16 * 0.25,
        "rollouts": 10 * 96 * 0.5,
        "updates": pytest.approx(10 * 96 * 0.75 * (1 + 2 / 3)),  # trained once, scored twice
        "evaluations": 3 * 32 * 0.5,  # before, after 5 and after 10 updates
    }
    assert run_seconds(preset("smoke", settings), PACE)["fine-tuning"] == 0
    credited = {**settings, "update.advantage": "monte_carlo", "agent.max_turns": 3, "online_k": 2}
    # 96 trajectories, 8 continuations each of 3, 2 and 1 turns, of which an episode has 3
    assert run_seconds(preset("smoke", credited), PACE)["credit"] == 5 * 96 * 8 * (3 + 2 + 1) / 3 * 0.5
    assert (
        in_words({"fine-tuning": 0.0, "rollouts": 30.0, "updates": 60.0}) == "1.5 min (rollouts 30 s, updates 1.0 min)"
    )


@pytest.mark.parametrize(
    ("settings", "trained", "scored"),
    [
        ({"advantage": "grpo"}, 2, 2),
        ({"advantage": "grpo", "scored_share": 0.25}, 2, 0.5),
        ({"advantage": "grpo", "kl_coefficient": 0.1}, 2, 3),
        ({"advantage": "gae", "advantage_scale": "none"}, 4, 3),
        ({"advantage": "istar", "advantage_scale": "none"}, 3, 4),
    ],
    ids=["policy", "a share scored", "reference", "critic", "process rewards"],
)
def test_recomputed_activations_cost_a_third_more(settings: dict[str, object], trained: int, scored: float) -> None:
    """A forward pass takes a third of a training pass; scoring is only a forward pass, so its time does not change."""
    for is_checkpointed, training_pass in ((False, 1), (True, 4 / 3)):
        changes = {"num_epochs": 2, "kl_coefficient": 0, **settings, "activation_checkpointing": is_checkpointed}
        config = preset("smoke", {f"update.{name}": value for name, value in changes.items()})
        tokens = count_tokens(config)
        num_trained = tokens.num_trajectories * tokens.kept
        assert num_passes(config) / num_trained == pytest.approx(trained * training_pass + scored / 3)


def test_run_time_scales_from_measured_run(store_with_times: Store) -> None:
    """Two iterations: rollouts of 4 and 2 s, the second with a further attempt of 3 s; updates of 10 and 20 s."""
    config = preset("smoke", {"iterations": 2})
    seconds = run_seconds(config, pace_of(store_with_times, "a"))
    assert (seconds["rollouts"], seconds["updates"]) == (pytest.approx(9.0), pytest.approx(30.0))
    twice = preset("smoke", {"iterations": 4, "rollout.group_size": 2 * config.rollout.group_size})
    assert num_played(twice) == 2 * num_played(config)
    assert run_seconds(twice, pace_of(store_with_times, "a"))["rollouts"] == pytest.approx(4 * 9.0)


def test_pace_without_an_update_fails(tmp_path) -> None:
    store = Store(str(tmp_path))
    store.runs.create("a", flow="starpo", preset=None, config=preset("smoke").model_dump(mode="json"))
    with pytest.raises(ConfigError, match="run 'a' has stored no update yet"):
        pace_of(store, "a")


@pytest.fixture
def store_with_times(tmp_path) -> Store:
    store = Store(str(tmp_path))
    config = preset("smoke", {"iterations": 2}).model_dump(mode="json")
    store.runs.create("a", flow="starpo", preset=None, config=config)
    times = [(0, "rollout", 4.0), (0, "update", 10.0), (1, "rollout", 2.0), (1, "rollout:1", 3.0), (1, "update", 20.0)]
    for number, (iteration, stage, seconds) in enumerate(times):
        facts = Facts(
            key=f"{number:032x}", stage=Stage(name="s", version=1), settings={}, inputs={}, seed=0,
            provenance={"seconds": seconds},
        )  # fmt: skip
        store.put_table("turns", example("turns"), facts)
        store.runs.record_stage("a", iteration, stage, {"turns": facts.key})
    return store
