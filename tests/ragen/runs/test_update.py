"""`run_update` on stored datasets, with a learner that does nothing."""

import logging

import pyarrow as pa
import pytest

from starpo.ragen.learning.learners.learner import UpdateResult
from starpo.ragen.runs.update import run_update
from starpo.ragen.store import Facts, Store
from starpo.schemas.manifest import Stage
from tests.examples import example

KINDS = ("turns", "rewards", "selection")
SETTINGS = {"iteration": 0, "num_iterations": None, "temperature": 1.0, "max_response_tokens": 8, "scored_share": 0.34}


@pytest.mark.parametrize(("was_believed", "warnings"), [(1.0, 0), (0.0, 1), (None, 0)])
def test_log_probs_of_the_rollout_that_were_not_believed_are_said(
    store: Store, caplog: pytest.LogCaptureFixture, was_believed: float | None, warnings: int
) -> None:
    for kind in KINDS:
        facts = Facts(key="k" * 32, stage=Stage(name="s", version=1), settings={}, inputs={}, seed=0)
        store.put_table(kind, example(kind), facts)

    class Idle:
        def update(self, trajectories: object, context: object, on_progress: object) -> UpdateResult:
            metrics = {} if was_believed is None else {"update/old_is_from_rollout": was_believed}
            return UpdateResult(pa.table({}), metrics | {"update/old_behaviour_gap_max": 0.11}, {})

    with caplog.at_level(logging.WARNING):
        run_update(store, Idle(), SETTINGS, dict.fromkeys(KINDS, "k" * 32), 0)  # type: ignore[arg-type]
    assert len(caplog.messages) == warnings
    assert all("up to 0.11 nats" in said and "scored_share = 0.34" in said for said in caplog.messages)
