"""`rollout.max_attempts` in the real flow: what is played and kept, equal digests after a kill, and all readers.

A rollout has four groups and six are wanted, so the first rollout of an iteration is never enough.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from starpo.flows.cli import app
from starpo.flows.presets import preset
from starpo.flows.replay import replay
from starpo.flows.starpo import starpo
from starpo.ragen.config.load import recorded_config
from starpo.ragen.evidence.audit.stored import open_database
from starpo.ragen.evidence.report.data import gather
from starpo.ragen.learning.metrics.table import metric_values
from starpo.ragen.runs.training_states import training_states
from starpo.ragen.store import Store
from starpo.ragen.store.attempts import of_kind, read_attempts, recorded_data
from starpo.ragen.store.keeping.copying import copy_run
from starpo.ragen.store.keeping.reachability import Reachability
from starpo.ragen.store.remote.opening import open_location
from starpo.tasks.loop.plan import plan_run
from starpo.tasks.loop.verify import verify_run
from tests.integration.forging import AFTER_START
from tests.integration.run_digests import digests

pytestmark = [pytest.mark.usefixtures("prefect_server"), pytest.mark.timeout(600)]

NUM_GROUPS, NUM_WANTED, MAX_ATTEMPTS = 4, 6, 3
REFILLED = {
    "filter.strategy": "none",
    "filter.num_wanted": NUM_WANTED,
    "rollout.max_attempts": MAX_ATTEMPTS,
    "rollout.num_groups": NUM_GROUPS,
    "rollout.group_size": 2,
}


def train(folder: Path, **overrides: object) -> tuple[Store, str]:
    run = starpo(preset("smoke", {**REFILLED, **overrides}), preset="smoke", store=str(folder))
    return Store(str(folder)), run


def groups(store: Store, data: dict[str, str]) -> list[dict]:
    return read_attempts(store, "selection", data, ["group_id", "env_seed", "kept", "reason"]).to_pylist()


def metrics(store: Store, key: str) -> dict[str, float]:
    table = store.read_table("metrics", key)
    return metric_values(table)


@pytest.fixture(scope="module")
def finished(
    tmp_path_factory: pytest.TempPathFactory, prefect_server: None, begun: Callable[..., str]
) -> tuple[Store, str]:
    return train(Path(begun(tmp_path_factory.mktemp("store"))))


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory, finished: tuple[Store, str]) -> tuple[Store, str]:
    """The finished run in another store, to which only what it needs was copied."""
    store, run = finished
    folder = tmp_path_factory.mktemp("copy")
    copy_run(open_location(store.url), run, open_location(str(folder)))
    return Store(str(folder)), run


def test_attempts_continue_until_enough_kept(finished: tuple[Store, str]) -> None:
    store, run = finished
    for iteration in range(2):
        stages = store.runs.iteration(run, iteration)
        data = recorded_data(stages)
        num_attempts = len(of_kind(data, "turns"))
        assert 2 <= num_attempts <= MAX_ATTEMPTS
        decided = groups(store, data)
        assert [row["group_id"] for row in decided] == [f"g{n:04d}" for n in range(num_attempts * NUM_GROUPS)]
        assert len({row["env_seed"] for row in decided}) == len(decided)
        kept = [row["group_id"] for row in decided if row["kept"]]
        assert len(kept) == NUM_WANTED or num_attempts == MAX_ATTEMPTS
        before_last = decided[: (num_attempts - 1) * NUM_GROUPS]
        assert sum(row["kept"] for row in before_last) < NUM_WANTED
        surplus = [
            row for row in decided if row["reason"].startswith("dropped: surplus, the 6 groups wanted were kept")
        ]
        assert all(row["group_id"] > max(kept) for row in surplus)
        assert len(kept) + len(surplus) + sum("zero variance" in row["reason"] for row in decided) == len(decided)


def test_update_uses_kept_groups_of_attempts(finished: tuple[Store, str]) -> None:
    store, run = finished
    stages = store.runs.iteration(run, 0)
    data = recorded_data(stages)
    update = store.manifest("samples", stages["update"]["samples"])
    assert {role: key for role, key in update.inputs.items() if role not in ("checkpoint", "reference")} == data
    trained = set(store.read_table("samples", update.key)["group_id"].to_pylist())
    assert trained == {row["group_id"] for row in groups(store, data) if row["kept"]}
    assert {group >= f"g{NUM_GROUPS:04d}" for group in trained} == {False, True}


def test_the_plan_knows_every_stage(finished: tuple[Store, str], tmp_path: Path) -> None:
    store, run = finished
    config = recorded_config(run, store.runs.get(run).config, "")
    plan = plan_run(store, run, config)
    assert plan.new == []
    assert plan.assumed == {}
    num_played = sum(len(of_kind(recorded_data(s), "turns")) for s in store.runs.iterations(run).values())
    assert len([stage for stage in plan.stages if stage.stage.name == "rollout"]) == num_played
    before = plan_run(Store(str(tmp_path)), run, config)
    assert before.assumed["filter/num_kept"] == 0
    assert [stage.name for stage in before.stages if stage.stage.name == "rollout"] == ["rollout"] * 2


def test_run_with_attempts_is_verified(finished: tuple[Store, str]) -> None:
    verification = verify_run(*finished, **AFTER_START)
    assert verification.is_faultless
    checked = {(f.stage, str(f.verdict)) for f in verification.findings if f.check in ("turns", "selection", "tokens")}
    assert {"rollout:1", "variance_filter:1", "update"} <= {stage for stage, _ in checked}
    assert {verdict for _, verdict in checked} == {"same"}


def test_record_missing_an_attempt_is_rejected(copied: tuple[Store, str]) -> None:
    """The number of groups that the selections keep shows that another rollout was needed."""
    from starpo.tasks.loop.record_walk import walk_record

    store, run = copied
    recorded = {iteration: dict(stages) for iteration, stages in store.runs.iterations(run).items()}
    for name in [name for name in recorded[0] if name.endswith(":1") and not name.startswith("evaluate")]:
        del recorded[0][name]
    config = recorded_config(run, store.runs.get(run).config, "")
    walk = walk_record(store, store.runs.get(run), config, recorded)
    assert ("rollout:1", 0) in {(finding.stage, finding.iteration) for finding in walk.findings}
    assert walk_record(store, store.runs.get(run), config, store.runs.iterations(run)).findings == []


@pytest.mark.thorough
def test_run_with_attempts_is_replayed(finished: tuple[Store, str]) -> None:
    """Unchanged settings give the same updates. With fewer groups wanted, those of later attempts are surplus."""
    store, run = finished
    name = replay(run, store=store.url)
    ours, theirs = (list(store.runs.iterations(r).values())[:2] for r in (run, name))
    for mine, other in zip(ours, theirs, strict=True):
        assert other["update"] == mine["update"]
        assert recorded_data(other) == recorded_data(mine)
    fewer = replay(run, stop=1, overrides={"filter.num_wanted": 2}, store=store.url)
    stages = store.runs.iteration(fewer, 0)
    kept = [row["group_id"] for row in groups(store, recorded_data(stages)) if row["kept"]]
    assert len(kept) == 2
    compared = metrics(store, stages["compare"]["metrics"])
    assert compared["replay/groups_kept_by_both"] == 2
    assert verify_run(store, fewer).is_faultless


def test_every_reader_sees_all_attempts(finished: tuple[Store, str]) -> None:
    store, run = finished
    data = recorded_data(store.runs.iteration(run, 0))
    ids = [row["group_id"] for row in groups(store, data)]
    with open_database(store, [run]) as database:
        rows = database.query(
            "select attempt, count(*) as n from selection where iteration = 0 group by all"
        ).to_pylist()
        played = database.query(
            "select count(distinct group_id) as played, count(advantage) as trained, count(kept) as decided "
            "from trajectories where iteration = 0"
        ).to_pylist()[0]
    assert sorted((row["attempt"], row["n"]) for row in rows) == [
        (attempt, NUM_GROUPS) for attempt in range(len(of_kind(data, "turns")))
    ]
    assert played["played"] == len(ids)
    assert played["decided"] == 2 * len(ids)
    assert played["trained"] == 2 * sum(row["kept"] for row in groups(store, data))
    report = gather(store, run)
    assert report.missing == []
    decisions = [decision for decision in report.decisions if decision.iteration == 0]
    assert sorted(decision.rank for decision in decisions) == list(range(len(ids)))
    assert {decision.group_id for decision in decisions} == set(ids)
    shown = CliRunner().invoke(app, ["show", run, "--iteration", "0", "--store", store.url, "--json"])
    assert [group["group_id"] for group in json.loads(shown.stdout)["groups"]] == ids
    last = f"{ids[-1]}-1"
    one = CliRunner().invoke(
        app, ["show", run, "--iteration", "0", "--trajectory", last, "--store", store.url, "--json"]
    )
    assert one.exit_code == 0, one.output


def test_states_of_all_attempts_are_training(finished: tuple[Store, str]) -> None:
    store, run = finished
    stages = store.runs.iteration(run, 0)
    known = training_states(store, stages["update"]["checkpoint"])
    played = read_attempts(store, "turns", recorded_data(stages), ["initial_state_digest"])
    assert set(played["initial_state_digest"].to_pylist()) <= known.digests


def test_a_copy_has_all_attempts(finished: tuple[Store, str], copied: tuple[Store, str]) -> None:
    assert digests(*copied) == digests(*finished)
    store, run = copied
    reach = Reachability(open_location(store.url)).of(run)
    assert reach.faults == []
    assert {
        key for stages in store.runs.iterations(run).values() for key in recorded_data(stages).values()
    } <= reach.keys


@pytest.mark.parametrize(
    "missing",
    [*(pytest.param(stage, marks=pytest.mark.thorough) for stage in ("rollout", "rollout:1")), "variance_filter:1"],
)
def test_resumed_run_has_same_digests(finished: tuple[Store, str], tmp_path: Path, missing: str) -> None:
    """The store is as after a kill in the second iteration, before this stage was stored."""
    original, run = finished
    shutil.copytree(original.url, tmp_path, dirs_exist_ok=True)
    records = original.runs.iterations(run)
    for iteration in (1, 2):
        (tmp_path / "runs" / run / "iterations" / f"{iteration:05d}.json").unlink()
    for kind, key in [*records[1][missing].items(), *records[1]["update"].items()]:
        (tmp_path / kind / key / "manifest.json").unlink()
    store, again = train(tmp_path)
    assert again == run
    assert digests(store, run) == digests(original, run)


def test_exhausted_attempts_train_on_varying_groups(
    finished: tuple[Store, str], caplog: pytest.LogCaptureFixture
) -> None:
    overrides = {"rollout.max_attempts": 2, "filter.num_wanted": 100, "iterations": 1}
    store, run = train(Path(finished[0].url), **overrides)
    data = recorded_data(store.runs.iteration(run, 0))
    assert len(of_kind(data, "turns")) == 2
    num_kept = sum(row["kept"] for row in groups(store, data))
    assert (
        f"after 2 rollouts, all that rollout.max_attempts allows, the filter has kept {num_kept} groups" in caplog.text
    )
    assert "update" in store.runs.iteration(run, 0)


@pytest.mark.thorough
def test_updates_sharing_rollout_share_attempts(finished: tuple[Store, str]) -> None:
    store, run = train(Path(finished[0].url), online_k=2)
    first, second = (recorded_data(store.runs.iteration(run, iteration)) for iteration in (0, 1))
    assert first == second
    assert len(of_kind(first, "turns")) > 1
    assert first == recorded_data(store.runs.iteration(finished[1], 0))
    assert verify_run(store, run).is_faultless
