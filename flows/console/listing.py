"""Tables of runs, iterations, presets and environments."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from starpo.flows.console.table import print_table
from starpo.flows.console.terminal import Console, print_json, say
from starpo.ragen.core.counts import counted, duration
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.evidence.run_facts import success_curve
from starpo.ragen.runs.counting import updates_before
from starpo.ragen.store import Store
from starpo.ragen.store.records.runs import StageKeys

if TYPE_CHECKING:
    from starpo.flows.console.documents.document import JsonDocument


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
    curve = success_curve(store, store.runs.get(run), recorded)
    if not curve:
        return "not evaluated yet"
    return " -> ".join(
        f"{point['success']:.3f} [{point['low']:.3f}, {point['high']:.3f}] "
        f"after {counted(_updates(recorded, point['iteration']), 'update')}"
        for point in (curve if len(curve) == 1 else (curve[0], curve[-1]))
    )


def _updates(recorded: Mapping[int, StageKeys], before: float) -> int:
    return updates_before(((iteration, stage) for iteration, stages in recorded.items() for stage in stages), before)


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


def print_records(records: "Sequence[JsonDocument]", as_json: bool, title: str, nothing: str = "") -> None:
    """Print records of one type as JSON, or as the rows of a table; see `print_rows`."""
    if as_json:
        print_json(records)
    else:
        print_rows([record.model_dump() for record in records], title, nothing)


def print_rows(rows: list[dict[str, Any]], title: str, nothing: str) -> None:
    """Print rows with the same columns as a table.

    Args:
        rows: The rows.
        title: Title of the table.
        nothing: Message if there are no rows.
    """
    console = Console()
    if not rows:
        say(console, nothing)
        return
    print_table(console, rows, title=title)
