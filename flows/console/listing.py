"""Tables of runs, iterations, presets and environments; the same facts as JSON for machines."""

import math
from collections.abc import Mapping
from typing import Any

from starpo.flows.console.table import print_table
from starpo.flows.console.terminal import Console, print_json, say
from starpo.ragen.core.counts import counted, duration
from starpo.ragen.core.errors import ArtifactDamagedError, ConfigError
from starpo.ragen.runs.counting import updates_before
from starpo.ragen.store import Store
from starpo.ragen.store.records.runs import RunRecord, RunState, StageKeys


def recorded_stages(store: Store, run: str, iteration: int) -> StageKeys:
    """Return the recorded stages of an iteration.

    Raises:
        StoreError: If there is no such run.
        ConfigError: If it has no such iteration.
    """
    store.runs.get(run)
    iterations = store.runs.iterations(run)
    if iteration not in iterations:
        known = f"{min(iterations)} to {max(iterations)}" if iterations else "none"
        raise ConfigError(f"run {run} has no iteration {iteration}; it has {known}")
    return iterations[iteration]


def success_line(store: Store, run: str) -> str:
    """Format success on the panel at the first and the last evaluated checkpoint, with 95% intervals."""
    recorded = store.runs.iterations(run)
    curve = _curve(store, store.runs.get(run), recorded)
    if not curve:
        return "not evaluated yet"
    return " -> ".join(
        f"{point['success']:.3f} [{point['low']:.3f}, {point['high']:.3f}] "
        f"after {counted(_updates(recorded, point['iteration']), 'update')}"
        for point in (curve if len(curve) == 1 else (curve[0], curve[-1]))
    )


def evaluation_curve(store: Store, run: RunRecord) -> list[dict[str, float]]:
    """Return success with its interval on the training environment's panel, at every evaluated checkpoint."""
    return _curve(store, run, store.runs.iterations(run.name))


def _curve(store: Store, run: RunRecord, recorded: Mapping[int, StageKeys]) -> list[dict[str, float]]:
    cell = run.environment
    points = []
    for iteration, stages in recorded.items():
        keys = stages.get(f"evaluate:{cell}")
        if keys:
            points.append({"iteration": iteration, **success_of(store, keys.get("episodes", ""), cell)})
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


def _updates(recorded: Mapping[int, StageKeys], before: float = math.inf) -> int:
    return updates_before(((iteration, stage) for iteration, stages in recorded.items() for stage in stages), before)


_BAND = {"success": "", "low": "_low", "high": "_high"}


def run_facts(store: Store, run: RunRecord) -> dict[str, Any]:
    """Collect a run's identity, progress and success."""
    recorded = store.runs.iterations(run.name)
    curve = _curve(store, run, recorded)
    state = store.runs.state(run.name)
    status: str = state.status if state else "unknown"
    if status == "running" and not store.runs.is_running(run.name):
        status = "interrupted"
    return {
        "run": run.name,
        "flow": run.flow,
        "preset": run.preset,
        "state": status,
        "iterations": sum("rollout" in stages or "update" in stages for stages in recorded.values()),
        "updates": sum("update" in stages for stages in recorded.values()),
        "hours": state.metrics["seconds"] / 3600 if state and "seconds" in state.metrics else None,
        "warning": _warning(run, state, recorded),
        "num_evaluations": len(curve),
        "success_first": curve[0]["success"] if curve else None,
        "success_last": curve[-1]["success"] if curve else None,
        "created": run.created.isoformat(timespec="seconds"),
        "store": store.url,
        "fault": None,
    }


def _warning(run: RunRecord, state: RunState | None, recorded: Mapping[int, StageKeys]) -> str:
    """Return why a run learns nothing; empty if it learns, or is not known to learn nothing."""
    if state is not None and state.warning:
        return state.warning
    done = [stages for stages in recorded.values() if "variance_filter" in stages]
    if run.flow != "starpo" or not done or any("update" in stages for stages in recorded.values()):
        return ""
    if state is not None and state.status == "running" and len(done) == 1:
        return ""  # its first update may be in progress
    none = f"nothing is learned: there is no update in {counted(len(done), 'iteration')}"
    return f"{none}; `starpo diagnose {run.name}` says why"


def at_a_glance(facts: dict[str, Any]) -> dict[str, Any]:
    """Select the facts of a run that fit into 80 columns; the store is in the title."""
    curve = [facts["success_first"], facts["success_last"]][: facts["num_evaluations"] or 0]
    updates: Any = facts["updates"]
    if facts["iterations"] != updates:
        updates = f"{updates} in {counted(facts['iterations'], 'iteration')}"
    return {
        "run": facts["run"],
        "state": facts["state"],
        "updates": updates,
        "success": " -> ".join(f"{value:.3f}" for value in curve),
        "time": "" if facts["hours"] is None else duration(3600 * facts["hours"]),
    }


def print_rows(rows: list[dict[str, Any]], as_json: bool, title: str, nothing: str) -> None:
    """Print rows with the same columns as a table, or as JSON.

    Args:
        rows: The rows.
        as_json: Print JSON.
        title: Title of the table.
        nothing: Message if there are no rows.
    """
    if as_json:
        print_json(rows)
        return
    console = Console()
    if not rows:
        say(console, nothing)
        return
    print_table(console, rows, title=title)
