"""A run with search and greedy baselines: what is stored and counted; it is verified, audited and replayed."""

from collections.abc import Callable
from pathlib import Path

import pyarrow.compute as pc
import pytest

from starpo.flows.presets import preset
from starpo.flows.replay import replay
from starpo.ragen.evidence.audit.audits import run_audits
from starpo.ragen.evidence.audit.stored import open_database
from starpo.ragen.runs.verify.verdict import Verdict
from starpo.ragen.store import Store
from tests.integration.forging import AFTER_START, RUN, verify
from tests.integration.training import train_run

pytestmark = pytest.mark.timeout(600)

SETTINGS = {"rollout.search.type": "best_of", "update.search_rows": "weigh", "rollout.num_greedy": 1, "iterations": 1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, begun: Callable[..., str]) -> Path:
    folder = tmp_path_factory.mktemp("search") / "store"
    train_run(preset("smoke", SETTINGS), store=begun(folder), run=RUN)
    return folder


def test_siblings_stored_greedy_members_not_counted(folder: Path) -> None:
    store, config = Store(str(folder)), preset("smoke", SETTINGS)
    stages = store.runs.iterations(RUN)[0]
    turns, siblings = (store.read_table(kind, stages["rollout"][kind]) for kind in ("turns", "siblings"))
    counts = dict(zip(*(column.to_pylist() for column in pc.value_counts(turns["origin"]).flatten()), strict=True))
    assert counts["search"] == pc.sum(siblings["chosen"]).as_py()
    assert siblings.num_rows == 4 * counts["search"]
    num_trajectories = config.rollout.num_groups * config.rollout.group_size
    assert pc.count_distinct(turns["trajectory_id"]).as_py() == num_trajectories + config.rollout.num_groups
    assert store.manifest("turns", stages["rollout"]["turns"]).headline["num_trajectories"] == num_trajectories
    selection = store.read_table("selection", stages["variance_filter"]["selection"])
    assert set(selection["num_trajectories"].to_pylist()) == {config.rollout.group_size}
    samples = store.read_table("samples", stages["update"]["samples"])
    greedy = turns.filter(pc.equal(turns["origin"], "greedy"))["trajectory_id"].to_pylist()
    assert greedy
    assert not set(greedy) & set(samples["trajectory_id"].to_pylist())


def test_run_verified_including_search(folder: Path) -> None:
    verification = verify(folder, **AFTER_START)
    assert [f for f in verification.findings if f.verdict is not Verdict.SAME] == []
    checks = {finding.check for finding in verification.findings if finding.stage == "rollout"}
    assert checks == {"turns", "siblings", "actions", "texts", "numbers"}


def test_no_audit_finds_a_fault(folder: Path) -> None:
    findings = dict(run_audits(open_database(Store(str(folder)), [RUN])))
    assert {name: finding.summary for name, finding in findings.items() if finding.severity == "fault"} == {}


@pytest.mark.usefixtures("prefect_server")
def test_run_replayed_from_its_turns(folder: Path) -> None:
    store = Store(str(folder))
    run = replay(RUN, store=store.url)
    recorded, replayed = store.runs.iterations(RUN)[0], store.runs.iterations(run)[0]
    assert replayed["update"] == recorded["update"]
