"""Replaying a real run on a real server: shared and new artifacts, the comparison, and damaged stores."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from starpo.flows.cli.show import show
from starpo.flows.console.replay_summary import print_comparison, replay_facts
from starpo.flows.presets import preset
from starpo.flows.replay import replay
from starpo.flows.starpo import starpo
from starpo.ragen.core.errors import ArtifactDamagedError
from starpo.ragen.store import Store
from starpo.ragen.store.records.runs import StageKeys
from starpo.tasks.loop.verify import verify_run
from starpo.tasks.progress import RunProgress
from tests.flows.documents import check

pytestmark = [pytest.mark.usefixtures("prefect_server"), pytest.mark.timeout(600)]

LEARNED = ("reward", "variance_filter", "update")
COPY = shutil.ignore_patterns("tmp", "episodes")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory, prefect_server: None, begun: Callable[..., str]) -> Store:
    """Store with the run 'base' of three iterations, of which the second reuses the rollout of the first (Online-k)."""
    folder = tmp_path_factory.mktemp("store")
    starpo(preset("smoke", {"iterations": 3, "online_k": 2}), preset="smoke", store=begun(folder), run="base")
    return Store(str(folder))


@pytest.fixture
def copied(base: Store, tmp_path: Path) -> Store:
    """Copy of the store, for a test to damage."""
    shutil.copytree(base.url, tmp_path / "own", ignore=COPY)
    return Store(str(tmp_path / "own"))


@pytest.fixture
def without_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make any attempt to play fail, at the only entry point to engines and, through them, to environments."""

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a replay has no environment and no engine")

    monkeypatch.setattr("starpo.ragen.runs.players.Players.player", refuse)


def artifacts(store: Store) -> set[str]:
    return {f"{path.parent.parent.name}/{path.parent.name}" for path in Path(store.url).glob("*/*/manifest.json")}


def learned(stages: StageKeys) -> StageKeys:
    return {stage: stages[stage] for stage in LEARNED}


@pytest.mark.usefixtures("without_engine")
def test_unchanged_settings_find_the_same_artifacts(base: Store) -> None:
    before = artifacts(base)
    run = replay("base", store=base.url)
    recorded, replayed = base.runs.iterations("base"), base.runs.iterations(run)
    assert set(replayed) == {0, 1, 2}
    for iteration, stages in replayed.items():
        assert learned(stages) == learned(recorded[iteration])
        assert stages["rollout"] == recorded[iteration]["rollout"]
    new = {f"metrics/{stages['compare']['metrics']}" for stages in replayed.values()}
    assert artifacts(base) - before == new
    for row in replay_facts(base, run)["iterations"]:
        assert row["gradient_cosine"] == 1
        assert row["weight_change_cosine"] == pytest.approx(1)
        assert row["weight_change_norm_ratio"] == pytest.approx(1)
        assert row["advantage_sign_flips"] == 0
        assert row["groups_kept_by_base_only"] == row["groups_kept_by_branch_only"] == 0
        assert row["base/entropy"] == row["branch/entropy"]


@pytest.mark.usefixtures("without_engine")
def test_changed_update_shares_rewards_and_selections(base: Store) -> None:
    run = replay("base", overrides={"update.advantage_scale": "none"}, store=base.url)
    recorded, replayed = base.runs.iterations("base"), base.runs.iterations(run)
    for iteration, stages in replayed.items():
        for stage in ("reward", "variance_filter"):
            assert stages[stage] == recorded[iteration][stage]
        assert stages["update"] != recorded[iteration]["update"]
    inputs = [base.manifest("samples", stages["update"]["samples"]).inputs for stages in replayed.values()]
    assert inputs[0]["checkpoint"] == recorded[0]["warm_start"]["checkpoint"]
    assert inputs[1]["checkpoint"] == replayed[0]["update"]["checkpoint"]
    assert inputs[2]["checkpoint"] == replayed[1]["update"]["checkpoint"]
    rows = replay_facts(base, run)["iterations"]
    assert rows[0]["gradient_cosine"] < 1
    assert rows[0]["branch/validity_before/effective_sample_size_trajectories"] == pytest.approx(1, abs=1e-4)
    assert rows[2]["branch/validity_before/kl"] > rows[0]["branch/validity_before/kl"]


@pytest.mark.usefixtures("without_engine")
def test_changed_filter_trains_on_other_groups(base: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    messages: list[tuple[str, dict[str, float]]] = []
    say = RunProgress.say
    monkeypatch.setattr(
        RunProgress, "say", lambda self, m, **facts: (messages.append((m, facts)), say(self, m, **facts))
    )
    run = replay("base", 1, 3, {"filter.strategy": "none", "filter.should_drop_zero_variance": False}, store=base.url)
    assert messages[0] == ("starting", {"iteration": 1, "iterations": 3})
    recorded, replayed = base.runs.iterations("base"), base.runs.iterations(run)
    assert set(replayed) == {1, 2}
    for iteration, stages in replayed.items():
        assert stages["reward"] == recorded[iteration]["reward"]
        assert stages["variance_filter"] != recorded[iteration]["variance_filter"]
    start = base.manifest("samples", replayed[1]["update"]["samples"]).inputs["checkpoint"]
    assert start == recorded[0]["update"]["checkpoint"]
    for row in replay_facts(base, run)["iterations"]:
        assert row["groups_kept_by_both"] + row["groups_kept_by_branch_only"] == 4
        assert row["groups_kept_by_branch_only"] > 0
        assert -1 <= row["weight_change_cosine"] < 1


@pytest.mark.usefixtures("without_engine")
def test_reward_and_filter_need_no_checkpoint(copied: Store, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(Path(copied.url) / "checkpoint")
    run = replay("base", overrides={"reward.format_penalty": -5.0}, should_update=False, store=copied.url)
    for iteration, stages in copied.runs.iterations(run).items():
        assert "update" not in stages
        assert stages["reward"] != copied.runs.iteration("base", iteration)["reward"]
    assert set(replay_facts(copied, run)["iterations"][0]) == {
        "iteration", "groups_kept_by_both", "groups_kept_by_base_only", "groups_kept_by_branch_only"
    }  # fmt: skip
    print_comparison(copied, run, as_json=False)
    assert "below it the branch's" not in capsys.readouterr().out


def test_empty_iterations_pass_the_checkpoint_on(tmp_path: Path) -> None:
    """Without a warm start every response is malformed, so all returns are equal."""
    config, store = preset("smoke", {"policy.warm_start_steps": 0}), Store(str(tmp_path))
    starpo(config, preset="smoke", store=store.url, run="base")
    first = store.runs.iteration("base", 0)["warm_start"]["checkpoint"]
    empty = replay("base", overrides={"reward.format_penalty": -1.0}, store=store.url)
    assert "update" not in store.runs.iteration(empty, 0)
    rows = replay_facts(store, empty)["iterations"]
    assert len(rows) == 2  # the last is complete too, since the run was evaluated after it
    assert all(row["groups_kept_by_both"] == row["groups_kept_by_branch_only"] == 0 for row in rows)
    assert not any("gradient_cosine" in row for row in rows)
    kept = replay("base", overrides={"filter.should_drop_zero_variance": False}, store=store.url)
    update = store.runs.iteration(kept, 0)["update"]
    assert store.manifest("samples", update["samples"]).inputs["checkpoint"] == first
    row, _ = replay_facts(store, kept)["iterations"]
    assert row["groups_kept_by_branch_only"] == 2
    assert "weight_change_cosine" not in row
    print_comparison(store, kept, as_json=False)


@pytest.mark.thorough
def test_dropped_start_is_derived(tmp_path: Path, begun: Callable[..., str]) -> None:
    store, config = Store(begun(tmp_path)), preset("smoke", {"iterations": 3, "checkpoint_every": 2})
    starpo(config, preset="smoke", store=store.url, run="base")
    dropped = store.runs.iteration("base", 0)["update"]["checkpoint"]
    assert not store.has("checkpoint", dropped)
    run = replay("base", 0, 2, {"update.advantage_scale": "none"}, store=store.url)
    for row in replay_facts(store, run)["iterations"]:
        assert "gradient_cosine" not in row
        assert "advantage_sign_flips" in row
    later = replay("base", 1, 2, {"update.advantage_scale": "none"}, store=store.url)
    assert (
        store.manifest("samples", store.runs.iteration(later, 1)["update"]["samples"]).inputs["checkpoint"] == dropped
    )
    (row,) = replay_facts(store, later)["iterations"]
    assert -1 <= row["weight_change_cosine"] < 1
    assert not store.has("checkpoint", dropped)
    assert replay("base", 1, 2, {"update.advantage_scale": "none"}, store=store.url) == later
    assert replay_facts(store, later)["iterations"] == [row]
    assert verify_run(store, later).outcome == "verified"


def test_replay_can_be_shown_and_reported(base: Store, capsys: pytest.CaptureFixture[str]) -> None:
    from starpo.ragen.evidence.report.data import gather
    from starpo.ragen.evidence.report.page import render_report
    from starpo.ragen.evidence.report.words import facts as facts_of

    run = replay("base", 0, 2, {"update.clip_high": 0.1}, store=base.url, run="tighter", should_evaluate=True)
    assert run == "tighter"
    record = base.runs.get(run)
    assert (record.flow, record.parameters["base"], record.parameters["start"], record.parameters["stop"]) == (
        "replay", "base", 0, 2
    )  # fmt: skip
    assert record.parameters["changed"] == {"update.clip_high": {"was": 0.28, "is": 0.1}}
    assert record.config["update"]["clip_high"] == 0.1
    data = gather(base, run)
    assert facts_of(data)[0] == ("Replay of", "base, from checkpoint 0 to 2")
    assert "tighter" in render_report(data)
    show(run, store=base.url)
    show(run, iteration=0, store=base.url, as_json=True)
    assert "replay/weight_change_cosine" in capsys.readouterr().out
    print_comparison(base, run, as_json=True)
    facts = check("replay", capsys.readouterr().out)
    assert set(facts["evaluation"]) == {"base", "branch"}
    of_base, of_branch = (facts["evaluation"][side]["success"] for side in ("base", "branch"))
    difference = facts["difference"]
    assert difference["mean"] == pytest.approx(of_branch - of_base)
    assert difference["low"] <= difference["mean"] <= difference["high"]
    assert difference["num_prompts"] == record.config["evaluation"]["num_prompts"]
    assert all(0 <= end["low"] <= end["success"] <= end["high"] <= 1 for end in facts["evaluation"].values())
    print_comparison(base, run, as_json=False)
    out = capsys.readouterr().out
    assert "base, from checkpoint 0 to 2\nupdate.clip_high: 0.28 -> 0.1" in out
    assert "entropy, ESS: the base's, below it the branch's" in out
    assert f"paired over {difference['num_prompts']} prompts" in out


def test_flipped_rollout_byte_stops_replay(copied: Store) -> None:
    turns = copied.runs.iteration("base", 2)["rollout"]["turns"]
    file = next((Path(copied.url) / "turns" / turns).glob("*.parquet"))
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(ArtifactDamagedError, match=f"turns/{turns} .* is damaged"):
        replay("base", overrides={"reward.format_penalty": -2.0}, store=copied.url, run="broken")
    assert copied.runs.state("broken").status == "failed"
    assert set(copied.runs.iterations("broken")) == {0, 1, 2}  # what was done before is kept
