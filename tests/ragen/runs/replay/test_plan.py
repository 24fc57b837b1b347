"""Where a replay starts, and requests that are refused before any work, with what was found and what to do."""

import json
import re
import shutil
from pathlib import Path

import pytest

from starpo.flows.presets import preset
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import ArtifactDamagedError, ArtifactMissingError, ConfigError, StoreError
from starpo.ragen.runs.replay.plan import REPLAYED, _changed_config, plan_replay
from starpo.ragen.store import Store


def delete(store: Store, kind: str, key: str) -> None:
    shutil.rmtree(Path(store.url) / kind / key)


def key_of(store: Store, iteration: int, stage: str, kind: str) -> str:
    return store.runs.iteration("base", iteration)[stage][kind]


def test_range_begins_before_first_update(base) -> None:
    plan = plan_replay(base, "base", 1, 3)
    assert list(plan.iterations) == [1, 2]
    assert plan.checkpoints[1] == key_of(base, 0, "update", "checkpoint")
    assert plan.checkpoints[3] == key_of(base, 2, "update", "checkpoint")
    assert plan.reference == key_of(base, 0, "warm_start", "checkpoint")


def test_the_whole_run_is_the_default(recorded) -> None:
    plan = plan_replay(recorded(3), "base")
    assert (plan.start, plan.stop, plan.changed) == (0, 3, {})


def test_iteration_without_update_keeps_checkpoint(recorded) -> None:
    plan = plan_replay(recorded(3, without_update=(1,)), "base")
    assert plan.checkpoints[2] == plan.checkpoints[1] != plan.checkpoints[3]


def test_unfinished_iteration_not_in_range(recorded) -> None:
    assert plan_replay(recorded(3, without_update=(2,)), "base").stop == 2


def test_overrides_hold_over_run_changes() -> None:
    schedule = [{"iteration": 2, "set": {"update.kl_coefficient": 0.05, "filter.keep": 1.0}}]
    fork = preset("bandit", {"schedule": schedule})
    changed = _changed_config(fork, {"update.kl_coefficient": 0.2})
    assert [changed.at(n).update.kl_coefficient for n in (0, 2, 5)] == [0.2, 0.2, 0.2]
    assert changed.at(2).filter.keep == 1.0
    assert _changed_config(fork, {}).schedule == fork.schedule


def test_without_updates_it_is_another_replay(base) -> None:
    whole, only_filter = (plan_replay(base, "base", 0, 2, should_update=should) for should in (True, False))
    assert "should_update" not in whole.parameters
    assert only_filter.parameters["should_update"] is False
    assert whole.name({}) != only_filter.name({})


def test_changes_named_with_both_values(base) -> None:
    plan = plan_replay(base, "base", 0, 2, {"filter.keep": 0.9, "update.clip_low": 0.2})
    assert plan.changed == {"filter.keep": (0.5, 0.9)}  # clip_low is 0.2 already
    assert plan.parameters["changed"] == {"filter.keep": {"was": 0.5, "is": 0.9}}
    assert plan.name({}).startswith("base-replay-0-2-")
    assert plan.name({}) != plan_replay(base, "base", 0, 2, {"filter.keep": 0.8}).name({})
    assert plan.name({}) == plan_replay(base, "base", 0, 2, {"filter.keep": 0.9}).name({})
    assert plan.name({"update": "2"}) != plan.name({"update": "3"}), "edited code is another replay"


def test_near_names_of_an_unknown_run(base) -> None:
    with pytest.raises(StoreError, match="did you mean base"):
        plan_replay(base, "bass")


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ("rollout.temperature", 0.7, "sampled with the recorded temperature"),
        ("seed", 7, "initial states"),
        ("online_k", 2, "which rollout"),
    ],
)
def test_settings_invalidating_rollouts_are_refused(base, path, value, reason) -> None:
    with pytest.raises(ConfigError, match=reason) as error:
        plan_replay(base, "base", overrides={path: value})
    assert path in str(error.value)
    assert "reward, filter, update" in str(error.value)


@pytest.mark.parametrize("table", sorted(set(StarPOConfig.model_fields) - set(REPLAYED)))
def test_only_reward_filter_update_changeable(base, table) -> None:
    with pytest.raises(ConfigError, match="cannot be changed in a replay"):
        plan_replay(base, "base", overrides={table: 1})


def test_near_names_of_an_unknown_setting(base) -> None:
    with pytest.raises(ConfigError, match="did you mean 'keep'"):
        plan_replay(base, "base", overrides={"filter.kep": 0.5})
    with pytest.raises(ConfigError, match="did you mean 'filter'"):
        plan_replay(base, "base", overrides={"fliter.keep": 0.5})


def test_wrong_value_says_what_is_allowed(base) -> None:
    with pytest.raises(ConfigError, match=r"filter\.keep = 1\.5 .*less than or equal to 1"):
        plan_replay(base, "base", overrides={"filter.keep": 1.5})


def test_settings_of_skipped_update_refused(base) -> None:
    with pytest.raises(ConfigError, match=r"update\.clip_high has no effect"):
        plan_replay(base, "base", overrides={"update.clip_high": 0.5}, should_update=False)


@pytest.mark.parametrize(("start", "stop"), [(0, 9), (3, 3), (3, 2), (-1, 2), (4, None)])
def test_invalid_range_names_the_available(base, start, stop) -> None:
    with pytest.raises(ConfigError, match="finished 4 iterations: expected 0 <= from < to <= 4"):
        plan_replay(base, "base", start, stop)


def test_unstarted_run_has_no_range(recorded) -> None:
    with pytest.raises(ConfigError, match="finished 0 iterations"):
        plan_replay(recorded(0), "base")


def test_missing_start_names_available_checkpoints(copied) -> None:
    delete(copied, "checkpoint", key_of(copied, 1, "update", "checkpoint"))
    with pytest.raises(ConfigError, match=r"checkpoint 2 of run 'base' .*nearest that are: 0, 1, 3"):
        plan_replay(copied, "base", 2)
    assert plan_replay(copied, "base", 2, should_update=False).start == 2
    assert plan_replay(copied, "base", 1).start == 1


def test_dropped_start_is_derived_on_demand(copied) -> None:
    copied.drop("checkpoint", key_of(copied, 1, "update", "checkpoint"))
    assert plan_replay(copied, "base", 2).start == 2


def test_kl_needs_the_first_checkpoint(copied) -> None:
    delete(copied, "checkpoint", key_of(copied, 0, "warm_start", "checkpoint"))
    assert plan_replay(copied, "base", 2).start == 2
    with pytest.raises(ArtifactMissingError, match="the reference"):
        plan_replay(copied, "base", 2, overrides={"update.kl_coefficient": 0.01})


@pytest.mark.parametrize(
    ("stage", "kind"),
    [("rollout", "turns"), ("reward", "rewards"), ("variance_filter", "selection"), ("update", "samples")],
)
def test_missing_artifact_named_with_advice(copied, stage, kind) -> None:
    key = key_of(copied, 2, stage, kind)
    delete(copied, kind, key)
    with pytest.raises(ArtifactMissingError, match=f"iteration 2 of run 'base': {kind}/{key}") as error:
        plan_replay(copied, "base")
    assert "Restore it from a copy" in str(error.value)
    assert plan_replay(copied, "base", 0, 2).stop == 2


def test_edited_manifest_noticed_before_work(copied) -> None:
    manifest = Path(copied.url) / "turns" / key_of(copied, 1, "rollout", "turns") / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "seed": 99}))
    with pytest.raises(ArtifactDamagedError, match="changed after it was written"):
        plan_replay(copied, "base")


def test_a_replay_is_not_replayed_itself(recorded) -> None:
    with pytest.raises(ConfigError, match="is itself a replay"):
        plan_replay(recorded(1, flow="replay"), "base")


def test_other_releases_settings_refused_by_name(copied) -> None:
    record = Path(copied.url) / "runs" / "base" / "run.json"
    record.write_text(re.sub('"keep":', '"kept":', record.read_text()))
    with pytest.raises(ConfigError, match=r"not valid in this release.*kept"):
        plan_replay(copied, "base")
