"""A run at a glance: what it is, how far it has come, what it has reached, and what is wrong with it.

runs/<run> + headlines of evaluations -> run_facts -> lists of runs, pages
"""

from collections.abc import Callable, Mapping
from typing import Any

from starpo.ragen.core.counts import counted
from starpo.ragen.core.errors import ArtifactDamagedError, StoreError
from starpo.ragen.store import Store
from starpo.ragen.store.records.runs import RunRecord, RunState, StageKeys

_BAND = {"success": "", "low": "_low", "high": "_high"}
_MEASURED = (
    "flow", "preset", "environment", "iterations", "updates", "planned", "activity", "seconds_left", "hours",
    "num_evaluations", "success_first", "success_last",
)  # fmt: skip


def evaluation_curve(store: Store, run: RunRecord) -> list[dict[str, float]]:
    """Return success with its interval on the training environment's panel, at every evaluated checkpoint."""
    return success_curve(store, run, store.runs.iterations(run.name))


def success_curve(store: Store, run: RunRecord, recorded: Mapping[int, StageKeys]) -> list[dict[str, float]]:
    """Return the same, of iterations that were read already."""
    cell = run.environment
    points = []
    for iteration, stages in recorded.items():
        keys = stages.get(f"evaluate:{cell}")
        if keys and "episodes" in keys:
            points.append({"iteration": iteration, **success_of(store, keys["episodes"], cell)})
    return points


def success_of(store: Store, episodes: str, cell: str) -> dict[str, float]:
    """Return the success of an evaluation with its interval: success, low, high.

    Raises:
        ArtifactDamagedError: If the headline of its episodes lacks any of these.
    """
    numbers = store.manifest("episodes", episodes).headline
    band = {name: numbers.get(f"evaluation/{cell}/success{suffix}") for name, suffix in _BAND.items()}
    known = {name: value for name, value in band.items() if isinstance(value, int | float)}
    if len(known) < len(_BAND):
        raise ArtifactDamagedError(
            f"the headline of episodes/{episodes} in {store.url} lacks the success on {cell}; `starpo store "
            "verify` finds what is damaged, and `starpo evaluate` measures a checkpoint again"
        )
    return known


def run_facts(store: Store, run: RunRecord, recorded: Mapping[int, StageKeys] | None = None) -> dict[str, Any]:
    """Collect a run's identity, progress and success, as JSON.

    Args:
        store: The store.
        run: The run.
        recorded: Its iterations; None to read them.

    Raises:
        StoreError: If its records, or an evaluation's headline, cannot be read.
    """
    recorded = store.runs.iterations(run.name) if recorded is None else recorded
    curve = success_curve(store, run, recorded)
    state = store.runs.state(run.name)
    return {
        "run": run.name,
        "flow": run.flow,
        "preset": run.preset,
        "environment": run.environment,
        **_state_facts(store, run.name, state),
        "iterations": sum("rollout" in stages or "update" in stages for stages in recorded.values()),
        "updates": sum("update" in stages for stages in recorded.values()),
        "planned": planned if isinstance(planned := run.config.get("iterations"), int) else None,
        "warning": _warning(run, state, recorded),
        "num_evaluations": len(curve),
        "success_first": curve[0]["success"] if curve else None,
        "success_last": curve[-1]["success"] if curve else None,
        "curve": curve,
        "created": run.created.isoformat(timespec="seconds"),
        "store": store.url,
        "fault": None,
    }


def state_facts(store: Store, run: str) -> dict[str, Any]:
    """Collect what of a run's facts changes while a stage is at work: state, activity or failure, time left, hours.

    Raises:
        StoreError: If its state cannot be read.
    """
    return _state_facts(store, run, store.runs.state(run))


def _state_facts(store: Store, run: str, state: RunState | None) -> dict[str, Any]:
    status: str = state.status if state else "unknown"
    if status == "running" and not store.runs.is_running(run):
        status = "interrupted"
    metrics = state.metrics if state else {}
    return {
        "state": status,
        "activity": state.message if state and status == "running" else None,
        "failure": state.message if state and status == "failed" else "",
        "seconds_left": metrics.get("seconds_left") if status == "running" else None,
        "hours": metrics["seconds"] / 3600 if "seconds" in metrics else None,
    }


def facts_or_fault(
    store: Store, run: str, read_iterations: Callable[[], Mapping[int, StageKeys] | None] = lambda: None
) -> dict[str, Any]:
    """Return the facts of a run, or its fault, so that a damaged run does not hide the others."""
    created = None
    try:
        record = store.runs.get(run)
        created = record.created.isoformat(timespec="seconds")
        return run_facts(store, record, read_iterations())
    except StoreError as error:
        unknown: dict[str, Any] = dict.fromkeys(_MEASURED)
        known: dict[str, Any] = {
            "created": created,
            "store": store.url,
            "warning": "",
            "failure": "",
            "curve": [],
            "fault": str(error),
        }
        return {"run": run, "state": "damaged", **unknown, **known}


def _warning(run: RunRecord, state: RunState | None, recorded: Mapping[int, StageKeys]) -> str:
    """Return why a run learns nothing; empty if it learns, or is not known to learn nothing."""
    if state is not None and state.warning:
        return state.warning
    filtered = [stages for stages in recorded.values() if "variance_filter" in stages]
    if run.flow != "starpo" or not filtered or any("update" in stages for stages in recorded.values()):
        return ""
    if state is not None and state.status == "running" and len(filtered) == 1:
        return ""  # its first update may be in progress
    none = f"nothing is learned: there is no update in {counted(len(filtered), 'iteration')}"
    return f"{none}; `starpo diagnose {run.name}` says why"
