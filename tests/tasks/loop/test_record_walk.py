"""A record is compared with what its settings imply, up to where it ends; nothing is carried out."""

import pytest

from starpo.flows.presets import preset
from starpo.ragen.learning.control.standstill import NUM_KEPT
from starpo.ragen.runs.verify.verdict import Verdict
from starpo.ragen.runs.work import Keys, Work
from starpo.ragen.store import Store
from starpo.ragen.store.records.run import RunStatus
from starpo.tasks.loop.record_walk import RecordWalk, walk_record
from starpo.tasks.loop.runner import Runner
from starpo.tasks.loop.training import train

CONFIG = preset("smoke", {"iterations": 2, "rollout.max_attempts": 2, "filter.num_wanted": 2})


class Listed(Runner):
    """Runner that lists the stages of a run whose filter keeps nothing in the first attempt and all in the second."""

    name, store_url = "mine", "memory://"

    def __init__(self) -> None:
        self.done: list[tuple[int, Work]] = []

    def stage(self, iteration: int, work: Work) -> Keys:
        self.done.append((iteration, work))
        return work.keys

    def metric(self, iteration: int, name: str) -> float | None:
        return 2.0 if name == NUM_KEPT else None

    def num_kept(self, iteration: int, attempt: int, selection: str) -> int:
        return 2 * attempt


@pytest.fixture(scope="module")
def stages() -> list[tuple[int, Work]]:
    runner = Listed()
    train(runner, CONFIG)
    return runner.done


def walked(store: Store, stages: list[tuple[int, Work]], status: RunStatus) -> RecordWalk:
    """Record these stages, whose artifacts are not stored, and walk the record."""
    store.runs.create("mine", flow="starpo", preset="smoke", config=CONFIG.model_dump(mode="json"))
    for iteration, work in stages:
        store.runs.record_stage("mine", iteration, work.name, work.keys)
    store.runs.set_state("mine", status)
    return walk_record(store, store.runs.get("mine"), CONFIG, store.runs.iterations("mine"))


def test_a_whole_record_fits(store: Store, stages: list[tuple[int, Work]]) -> None:
    walk = walked(store, stages, "completed")
    assert walk.findings == []
    assert [visit.work for visit in walk.visits] == [work for _, work in stages]


@pytest.mark.parametrize(("status", "verdict"), [("running", Verdict.NOT_SHOWN), ("completed", Verdict.DIFFERENT)])
@pytest.mark.parametrize("num", [1, 4, 7, 9, 13, 16])  # without metrics, no update recorded means none was asked for
def test_end_of_record_is_reported_once(
    store: Store, stages: list[tuple[int, Work]], num: int, status: RunStatus, verdict: Verdict
) -> None:
    assert len(stages) > 16
    walk = walked(store, stages[:num], status)
    (finding,) = walk.findings
    iteration, work = stages[num]
    assert (finding.iteration, finding.stage, finding.verdict) == (iteration, work.name, verdict)
    assert f"names no {work.name} in iteration {iteration}" in finding.detail
    assert len(walk.visits) == num


def test_missing_middle_stage_is_a_fault(store: Store, stages: list[tuple[int, Work]]) -> None:
    place = next(n for n, (_, work) in enumerate(stages) if work.stage.name == "reward")
    walk = walked(store, stages[:place] + stages[place + 1 :], "completed")
    (finding,) = walk.findings
    assert (finding.stage, finding.verdict) == ("reward", Verdict.DIFFERENT)
    assert len(walk.visits) == len(stages) - 1
