"""`run_update` on stored datasets, with learners that compute nothing."""

import logging
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from starpo.ragen.core.errors import LearnerError
from starpo.ragen.core.lookup import resolve
from starpo.ragen.learning.learners.learner import UpdateResult
from starpo.ragen.runs import update
from starpo.ragen.runs.update import run_update
from starpo.ragen.store import Facts, Store
from starpo.schemas.manifest import Stage
from tests.examples import example

KINDS = ("turns", "rewards", "selection")
SETTINGS = {"iteration": 0, "num_iterations": None, "temperature": 1.0, "max_response_tokens": 8, "scored_share": 0.34}


def stored_rows(store: Store) -> dict[str, str]:
    """Store a table of each kind that an update reads; kind -> key."""
    for kind in KINDS:
        facts = Facts(key="k" * 32, stage=Stage(name="s", version=1), settings={}, inputs={}, seed=0)
        store.put_table(kind, example(kind), facts)
    return dict.fromkeys(KINDS, "k" * 32)


@pytest.mark.ci
@pytest.mark.parametrize(("code", "error", "message"), [
    ("1 / 0", LearnerError, r"in its advantage 'estimator_of_mine:boom': \S+mine.py, line 2: ZeroDivisionError: div"),
    ("sys.exit(3)", LearnerError, r"line 2: SystemExit: sys.exit\(3\) was called. Nothing was stored"),
    ("pass", KeyError, "a fault of ours"),
])  # fmt: skip
def test_raising_custom_estimator_is_one_message(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, error: type[Exception], message: str
) -> None:
    (tmp_path / "estimator_of_mine.py").write_text(f"import sys\ndef boom(inputs): {code}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "estimator_of_mine", raising=False)

    class Calling:
        def update(self, *_: object) -> UpdateResult:
            resolve("estimator_of_mine:boom")(None)
            raise KeyError("a fault of ours")

    settings = SETTINGS | {"advantage": "estimator_of_mine:boom", "advantage_scale": "none"}
    with pytest.raises(error, match=message):
        run_update(store, Calling(), settings, stored_rows(store), 0)  # type: ignore[arg-type]


@pytest.mark.ci
@pytest.mark.parametrize(("was_believed", "warnings"), [(1.0, 0), (0.0, 1), (None, 0)])
def test_untrusted_rollout_logprobs_are_reported(
    store: Store, caplog: pytest.LogCaptureFixture, was_believed: float | None, warnings: int
) -> None:
    class Idle:
        def update(self, trajectories: object, context: object, on_progress: object) -> UpdateResult:
            metrics = {} if was_believed is None else {"update/old_is_from_rollout": was_believed}
            return UpdateResult(pa.table({}), metrics | {"update/old_behaviour_gap_max": 0.11}, {})

    update._warn_of_gap.cache_clear()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):  # it is said once
            run_update(store, Idle(), SETTINGS, stored_rows(store), 0)  # type: ignore[arg-type]
    assert len(caplog.messages) == warnings
    assert all("old_behaviour_gap_max" in message and "scored_share = 0.34" in message for message in caplog.messages)
