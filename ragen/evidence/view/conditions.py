"""Conditions in SQL on the trajectories of a run, evaluated in a process whose time and memory are bounded.

condition -> SELECT over the views of `starpo sql` -> iteration -> trajectories for which it holds

`audit.database` sees to it that SQL reads the run's views and nothing else. Its memory limit leaves out what a single
value takes, so the process has a limit too; and the pages' server stays as small as it is.

    python -m starpo.ragen.evidence.view.conditions STORE RUN SELECT
"""

import json
import os
import resource
import subprocess
import sys
from contextlib import suppress
from threading import Lock

from starpo.ragen.config.runtime import Runtime
from starpo.ragen.core.errors import QueryError, StarPOError
from starpo.ragen.evidence.audit.stored import open_database
from starpo.ragen.store import Store

TIMEOUT_S = 10.0
"""Time that a condition has inside the database."""
_START_S = 20.0
_BOUNDS = {"sql_timeout_s": TIMEOUT_S, "sql_memory_gb": 0.25, "sql_spill_gb": 1.0}
_PROCESS_BYTES = 1_500_000_000
"""Memory of the whole process, three times of what a condition on 300 iterations takes."""
_ENVIRONMENT = {"ARROW_DEFAULT_MEMORY_POOL": "system"}  # the usual one reserves a gigabyte
_WAIT_S = 2.0
_MAX_CHOSEN = 1_000_000
_NEEDS_MORE = (
    f"this condition needs more than {TIMEOUT_S:g} s or too much memory; narrow it down, or run it with `starpo sql`, "
    "whose limits can be set"
)
_evaluating = Lock()
"""Held by the one condition that is evaluated."""


def trajectories_where(store: Store, run: str, sql: str) -> dict[int, set[str]]:
    """Return the trajectories that a query chooses, by iteration.

    Args:
        store: Store that holds the run.
        run: Name of the run.
        sql: SELECT with the columns `iteration` and `trajectory_id`.

    Raises:
        QueryError: If it is wrong, takes too long or too much memory, or would do more than read the run's views.
    """
    if not _evaluating.acquire(timeout=_WAIT_S):
        raise QueryError("another condition in SQL is being evaluated; search again once it has been")
    try:
        ended = subprocess.run(
            [sys.executable, "-m", __name__, store.url, run, sql],
            env=os.environ | _ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT_S + _START_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise QueryError(_NEEDS_MORE) from error
    finally:
        _evaluating.release()
    if ended.returncode:  # it was killed, or could not go on
        raise QueryError(_NEEDS_MORE)
    result = json.loads(ended.stdout)
    if "fault" in result:
        raise QueryError(result["fault"])
    return {int(iteration): set(trajectories) for iteration, trajectories in result["chosen"].items()}


def answer(store: str, run: str, sql: str) -> dict[str, object]:
    """Answer in this process: `chosen`, trajectories by iteration, or `fault`, in words."""
    bounds = Runtime.current().model_copy(update=_BOUNDS)
    try:
        with open_database(Store(store), [run], bounds=bounds) as database:
            rows = database.query(f"select iteration, trajectory_id from ({sql}\n) limit {_MAX_CHOSEN + 1}")
    except StarPOError as error:
        return {"fault": _NEEDS_MORE if "STARPO_SQL" in str(error) else str(error)}
    if rows.num_rows > _MAX_CHOSEN:
        return {"fault": f"the condition chooses more than {_MAX_CHOSEN:,} trajectories; narrow it down"}
    chosen: dict[int, list[str]] = {}
    for iteration, trajectory in zip(rows["iteration"].to_pylist(), rows["trajectory_id"].to_pylist(), strict=True):
        chosen.setdefault(iteration, []).append(trajectory)
    return {"chosen": chosen}


if __name__ == "__main__":
    with suppress(ValueError, OSError):  # a system without this limit
        resource.setrlimit(resource.RLIMIT_DATA, (_PROCESS_BYTES, _PROCESS_BYTES))
    json.dump(answer(*sys.argv[1:]), sys.stdout)
