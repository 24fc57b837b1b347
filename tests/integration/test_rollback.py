"""A real run whose policy is destroyed by a learning rate: it collapses, is rolled back, and completes as a fork."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from starpo.flows.ablation_plan import plan_ablation
from starpo.flows.presets import preset
from starpo.flows.starpo import starpo
from starpo.ragen.runs.forks import family
from starpo.ragen.store import Store
from starpo.ragen.studies.grid import Grid
from starpo.tasks.loop.verify import verify_run

pytestmark = [pytest.mark.usefixtures("prefect_server"), pytest.mark.timeout(600)]

BROKEN_AT = 5
GENTLE, BRUTAL = (
    {"update.optimiser.matrix_learning_rate": rate, "update.optimiser.learning_rate": rate} for rate in (1e-5, 1.0)
)
SETTINGS: dict[str, Any] = {
    "rollout.num_groups": 2,
    "filter.should_drop_zero_variance": False,  # a policy whose responses are all alike is trained too
    **GENTLE,
    "schedule": [{"iteration": BROKEN_AT, "set": BRUTAL}],
    "diagnostics.on_collapse": "roll_back",
    "diagnostics.remedies": [GENTLE],
}
ITERATIONS = {"collapsing": 8, "collapsed": 14}
"""Verdict that rolls back -> iterations: two warnings hold at once, a signal of collapse needs several points."""


@dataclass(frozen=True)
class Ended:
    """The run 'mine', which was rolled back.

    Attributes:
        store: Its store.
        run: Name of the run that completed.
        alarm: Verdict that rolled back.
        settings: Settings of 'mine'.
        events: Arguments of the events that were emitted.
    """

    store: Store
    run: str
    alarm: str
    settings: dict[str, Any]
    events: list[Any]


@pytest.fixture(scope="module", params=["collapsing", pytest.param("collapsed", marks=pytest.mark.thorough)])
def ended(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    prefect_server: None,
    begun: Callable[..., str],
) -> Ended:
    folder, alarm, num_iterations = begun(tmp_path_factory.mktemp("rollback")), request.param, ITERATIONS[request.param]
    settings = {
        **SETTINGS, "iterations": num_iterations, "evaluation.every": num_iterations, "diagnostics.alarm": alarm
    }  # fmt: skip
    events: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("starpo.flows.prefect_execution.emit_event", lambda *given, **more: events.append((given, more)))
        run = starpo(preset("smoke", settings), preset="smoke", store=folder, run="mine")
    return Ended(Store(folder), run, alarm, settings, events)


def test_collapsed_run_ends_as_fork(ended: Ended) -> None:
    runs, run = ended.store.runs, ended.run
    assert run.startswith("mine-rollback-")
    healthy = int(run.rpartition("-")[2])
    states = {name: runs.state(name).status for name in runs.names()}
    assert states == {"mine": "failed", run: "completed"}
    assert f"It goes on from checkpoint {healthy} as run '{run}'" in runs.state("mine").message
    [root] = family(ended.store)
    assert healthy <= BROKEN_AT
    assert [(fork.run.name, fork.start) for fork in root.forks] == [(run, BROKEN_AT)]  # equal settings until then
    assert ITERATIONS[ended.alarm] - 1 in runs.iterations(run)


def test_incident_holds_signals_and_transcripts(ended: Ended) -> None:
    store, run = ended.store, ended.run
    iteration = max(store.runs.iterations("mine"))
    folder = Path(store.local_folder("incident", store.runs.iterations("mine")[iteration]["incident"]["incident"]))
    facts = json.loads((folder / "incident.json").read_text())
    assert (facts["iteration"], facts["status"]) == (iteration, ended.alarm)
    assert run in facts["action"]
    severity = {"collapsing": "warning", "collapsed": "collapse"}[ended.alarm]
    assert any(signal["severity"] == severity for signal in facts["signals"])
    for name in ("before", "after"):
        [first, *_] = [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]
        assert first["turns"][0]["turn"] == 0


def test_ablation_counts_the_final_run(ended: Ended) -> None:
    store, grid = ended.store, Grid(name="x", preset="smoke", cells={"a": ended.settings}, seeds=[0])
    study = plan_ablation(grid, store, allow_few_seeds=True)
    study.runs[0].__dict__["name"] = "mine"  # the run was started by hand
    [cell] = study.result(store, {}).cells
    assert cell.runs == {0: ended.run}
    assert cell.errors == {}
    [panel] = cell.panels.values()
    assert panel.last_iteration == ITERATIONS[ended.alarm]


def test_both_are_verified(ended: Ended) -> None:
    """Around the place where they part; only the last record of the run that fell is not shown, as it did not end."""
    store, run = ended.store, ended.run
    place = {"first": BROKEN_AT - 1, "last": BROKEN_AT + 1}
    assert verify_run(store, run, **place).outcome == "verified"
    [finding] = [finding for finding in verify_run(store, "mine", **place).findings if finding.verdict != "same"]
    assert f"nothing seals runs/mine/iterations/{max(store.runs.iterations('mine')):05d}.json" in finding.detail


def test_prefect_told_of_worsening(ended: Ended) -> None:
    names = [given[0] for given, _ in ended.events]
    assert f"starpo.run.{ended.alarm}" in names
    assert set(names) <= {"starpo.run.warning", "starpo.run.collapsing", "starpo.run.collapsed"}
    assert ended.events[0][0][1]["prefect.resource.id"] == "starpo.run.mine"
