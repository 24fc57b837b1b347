"""Online-k: when a rollout is reused, when it is replaced early, and the report derived from the records of a run."""

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starpo.ragen.config.environment import EnvironmentConfig
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.evidence.diagnostics.metrics import metrics_table
from starpo.ragen.evidence.diagnostics.online import EFFECTIVE_SAMPLE_SIZE, KL, RolloutUse, by_reuse, reuses
from starpo.ragen.store import Facts, Store
from starpo.schemas.manifest import Stage

NEAR = {KL: 0.001, EFFECTIVE_SAMPLE_SIZE: 0.99}


def config(**settings: Any) -> StarPOConfig:
    from starpo.ragen.envs.variants import VARIANTS

    environment: EnvironmentConfig = VARIANTS["Sokoban"].settings
    return StarPOConfig(environment=environment, **settings)


@given(st.integers(1, 7), st.integers(1, 30))
def test_without_thresholds_every_kth_iteration_collects(online_k: int, iterations: int) -> None:
    use, collected = RolloutUse(config(online_k=online_k)), []
    for iteration in range(iterations):
        collected.append(use.should_collect(iteration))
        assert use.served({}) is None  # no metric is read
    assert collected == [iteration % online_k == 0 for iteration in range(iterations)]
    assert use.num_early == 0


@pytest.mark.parametrize(
    ("setting", "metrics", "words"),
    [
        ({"online_max_kl": 0.1}, {KL: 0.25}, "0.25 is above online_max_kl = 0.1"),
        (
            {"online_min_effective_sample_size": 0.9},
            {EFFECTIVE_SAMPLE_SIZE: 0.5},
            "0.5 is below online_min_effective_sample_size = 0.9",
        ),
    ],
)
def test_a_threshold_collects_early_and_is_counted(setting: Any, metrics: Any, words: str) -> None:
    use = RolloutUse(config(online_k=4, **setting))
    assert use.should_collect(0)
    assert use.served(NEAR) is None
    assert not use.should_collect(0)
    assert words in str(use.served({**NEAR, **metrics}))
    assert use.num_early == 0  # counted only when the next is collected: the run may end here
    assert use.should_collect(0)
    assert (use.num_early, use.num_updates, use.stale) == (1, 0, None)
    for _ in range(3):
        use.served(NEAR)
        assert not use.should_collect(0)  # four updates again, counted from the new rollout


def test_a_rollout_that_was_used_up_is_not_given_up_early() -> None:
    use = RolloutUse(config(online_k=1, online_max_kl=0.1))
    for _ in range(3):
        assert use.should_collect(0)
        assert use.served({KL: 9.0}) is None
    assert use.num_early == 0


def test_a_rollout_of_which_nothing_was_kept_is_not_tried_again() -> None:
    use = RolloutUse(config(online_k=5))
    use.should_collect(0)
    use.served_nothing()
    assert use.should_collect(0)
    assert use.num_early == 0


def test_what_is_not_known_yet_passes_no_threshold() -> None:
    use = RolloutUse(config(online_k=2, online_max_kl=0.1, online_min_effective_sample_size=0.9))
    use.should_collect(0)
    assert use.served({KL: math.nan, EFFECTIVE_SAMPLE_SIZE: math.nan}) is None


def test_what_was_played_with_other_settings_is_not_used_again() -> None:
    schedule = [
        {"iteration": 1, "set": {"update.kl_coefficient": 0.5}},
        {"iteration": 3, "set": {"rollout.temperature": 0.5}},
    ]
    use, collected = RolloutUse(config(online_k=4, schedule=schedule)), []
    for iteration in range(8):
        collected.append(use.should_collect(iteration))
        use.served({})
    assert collected == [True, False, False, True, False, False, False, True]
    assert use.num_early == 0


@pytest.mark.parametrize("settings", [{"online_max_kl": 0.0}, {"online_min_effective_sample_size": 1.0}])
def test_thresholds_have_bounds(settings: Any) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        config(**settings)


def stored_run(
    tmp_path: Path, rollouts: str, kls: list[float | None], stale: set[int] = frozenset(), has_siblings: bool = False
) -> Store:
    """Store with a run: for each iteration, a letter that names its rollout, and the KL before its update.

    A KL of None means that no group was kept. The updates of the iterations in `stale` end above the threshold.
    """
    store, stage = Store(str(tmp_path)), Stage(name="update", version=2)
    store.runs.create("r", flow="starpo", preset=None, config={"online_k": 3, "online_max_kl": 1.0})
    for iteration, (rollout, kl) in enumerate(zip(rollouts, kls, strict=True)):
        beside = {"siblings": rollout} if has_siblings and rollout not in rollouts[:iteration] else {}
        store.runs.record_stage("r", iteration, "rollout", {**beside, "turns": rollout})
        if kl is not None:
            key = f"m{iteration}"
            after = 9.0 if iteration in stale else 0.1
            values = {"update/validity_before/kl": kl, "update/clip_fraction": 0.5, KL: after}
            table = metrics_table(iteration, "update", values)
            store.put_table("metrics", table, Facts(key=key, stage=stage, settings={}, inputs={}, seed=0))
            store.runs.record_stage("r", iteration, "update", {"metrics": key, "checkpoint": key})
    return store


def test_reuses_are_read_off_the_records(tmp_path: Path) -> None:
    store = stored_run(tmp_path, "aaabbcccd", [0, 0.1, 0.2, 0, 0.4, 0, 0.3, 0.4, 0], stale={2, 4})
    found = reuses(store, "r")
    assert [update.reuse for update in found] == [0, 1, 2, 0, 1, 0, 1, 2, 0]
    assert [update.iteration for update in found if update.is_early] == [5]  # b served two updates of three
    rows = by_reuse(found)
    assert [(row["reuse"], row["num_updates"]) for row in rows] == [(0, 4), (1, 3), (2, 2)]
    assert rows[1]["kl"] == pytest.approx((0.1 + 0.4 + 0.3) / 3)
    assert rows[1]["clip_fraction"] == 0.5


def test_a_rollout_that_a_schedule_ends_is_not_an_early_one(tmp_path: Path) -> None:
    found = reuses(stored_run(tmp_path, "aabbb", [0, 0.1, 0, 0.1, 0.2]), "r")
    assert [update.reuse for update in found] == [0, 1, 0, 1, 2]
    assert not any(update.is_early for update in found)


def test_what_search_passed_over_stands_beside_the_first_use_alone(tmp_path: Path) -> None:
    found = reuses(stored_run(tmp_path, "aaab", [0, 0.1, 0.2, 0], has_siblings=True), "r")
    assert [update.reuse for update in found] == [0, 1, 2, 0]


def test_an_empty_rollout_is_not_an_early_one(tmp_path: Path) -> None:
    found = reuses(stored_run(tmp_path, "abbb", [None, 0, 0.1, 0.2]), "r")
    assert [update.reuse for update in found] == [0, 1, 2]
    assert not any(update.is_early for update in found)


def test_a_run_without_updates_and_one_of_an_earlier_release_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no update yet"):
        reuses(stored_run(tmp_path / "empty", "a", [None]), "r")
    store, stage = Store(str(tmp_path / "old")), Stage(name="update", version=1)
    store.runs.create("r", flow="starpo", preset=None, config={})
    table = metrics_table(0, "update", {"update/clip_fraction": 0.5})
    store.put_table("metrics", table, Facts(key="m", stage=stage, settings={}, inputs={}, seed=0))
    store.runs.record_stage("r", 0, "rollout", {"turns": "a"})
    store.runs.record_stage("r", 0, "update", {"metrics": "m"})
    with pytest.raises(ConfigError, match="earlier release"):
        reuses(store, "r")
