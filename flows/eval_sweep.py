"""Evaluation sweeps as a flow: a task a cell, and what is stored is not played again.

    sweep -> plan (which cells are missing?) -> evaluate, a task a cell -> result -> record, heat map, leaderboard

Cells are tasks with the tag `gpu`, so `prefect concurrency-limit create gpu N` bounds those at work in all sweeps.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from prefect import flow
from prefect.artifacts import (
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.futures import as_completed
from prefect.logging import get_run_logger
from prefect.states import State

from starpo.flows.eval_sweep_summary import leaderboard_rows, markdown
from starpo.flows.markdown import seen
from starpo.flows.runners import cell_runner
from starpo.flows.sweep_plan import PlannedCell, SweepPlan, plan_sweep
from starpo.ragen.config.runtime import Runtime
from starpo.ragen.core.errors import StarPOError
from starpo.ragen.store import Store
from starpo.ragen.studies.records import Sweeps
from starpo.ragen.studies.sweep.heat_map import draw_sweep
from starpo.ragen.studies.sweep.result import SweepResult
from starpo.ragen.studies.sweep.sweep import Sweep
from starpo.tasks.stage import stage_task

CELL_TAG = "gpu"
"""Of every cell's task; a Prefect concurrency limit of this name bounds how many are at work."""


class CellsFailedError(StarPOError):
    """Some cells of a sweep failed; the result of the others is stored."""


@flow(name="eval-sweep", validate_parameters=True)
def eval_sweep(sweep: Sweep, store: str | None = None, concurrency: int = 1) -> str:
    """Evaluate checkpoints x environments x temperatures x seeds; running it again evaluates what is missing.

    A cell that fails does not stop the others; in the end it fails the sweep.

    Args:
        sweep: Checkpoints, environments, temperatures and seeds.
        store: Store URL. None: the one of the serving process (RAGEN_STORE).
        concurrency: Cells at a time.

    Returns:
        The sweep's name; its result is in `<store>/sweeps/<name>`.

    Raises:
        ConfigError: If something is wrong with the sweep; nothing has been done then.
        CellsFailedError: If cells failed; the message names them.
    """
    opened = Store(store or Runtime.current().store)
    plan = plan_sweep(opened, sweep)
    records = Sweeps(opened.url)
    records.begin(sweep)
    errors = _evaluate_missing(opened, plan, records, max(1, concurrency))
    result = plan.result(opened, errors)
    records.save(result, draw_sweep(result))
    _publish(result, records.place(sweep.name))
    if result.failures:
        raise CellsFailedError(_failure_message(result, records.place(sweep.name)))
    return sweep.name


def _evaluate_missing(store: Store, plan: SweepPlan, records: Sweeps, concurrency: int) -> dict[str, str]:
    """Evaluate what is not stored. Returns label of a cell -> why it failed."""
    log = get_run_logger()
    for run, what in plan.waiting.items():
        log.info("run %s does not have %s yet; a later sweep will find it", run, what)
    missing, total = plan.missing, len(plan.cells)
    log.info("sweep %s: %d cells, %d of them stored", plan.sweep.name, total, total - len(missing))
    measured = {planned.cell.label: planned.work.keys for planned in plan.cells if planned.is_stored}
    records.name_cells(plan.sweep.name, measured)
    progress: Any = create_progress_artifact(_percent(len(measured), total), description=f"sweep {plan.sweep.name}")
    errors: dict[str, str] = {}
    dropped = plan.dropped(store)
    with _left_as_found(store, dropped):
        for number, (planned, state) in enumerate(_ended(store.url, missing, dropped, concurrency), start=1):
            label = planned.cell.label
            if state.is_completed():
                measured[label] = planned.work.keys
                records.name_cells(plan.sweep.name, measured)
                log.info("%d of %d: %s", number, len(missing), label)
            else:
                errors[label] = _reason(state)
                log.error("%d of %d: %s failed: %s", number, len(missing), label, errors[label])
            update_progress_artifact(progress, _percent(len(measured) + len(errors), total))
    return errors


def _ended(
    store_url: str, missing: Sequence[PlannedCell], dropped: Collection[str], concurrency: int
) -> Iterator[tuple[PlannedCell, State[Any]]]:
    """Evaluate cells; yields each with its task's final state, as it ends.

    Cells of a checkpoint that was dropped wait for the first of them, which brings it back: it is derived once.
    """
    if not missing:
        return
    with cell_runner(concurrency) as runner:
        for wave in _waves(missing, dropped):
            futures = {}
            for planned in wave:
                task = stage_task(planned.work, planned.cell.label, tags={CELL_TAG})
                futures[runner.submit(task, {"store_url": store_url, "work": planned.work})] = planned
            for future in as_completed(list(futures)):
                future.wait()  # takes its final state over
                yield futures[future], future.state


def _waves(missing: Sequence[PlannedCell], dropped: Collection[str]) -> Iterator[list[PlannedCell]]:
    """All cells, but of each dropped checkpoint one; then the others."""
    begun: set[str] = set()
    first: list[PlannedCell] = []
    later: list[PlannedCell] = []
    for planned in missing:
        key = planned.cell.checkpoint
        (later if key in begun else first).append(planned)
        if key in dropped:
            begun.add(key)
    yield first
    if later:
        yield later


@contextmanager
def _left_as_found(store: Store, dropped: Sequence[str]) -> Iterator[None]:
    """Drop again the checkpoints that cells bring back: a sweep over a long run must not keep all of its weights."""
    try:
        yield
    finally:
        for key in dropped:
            if store.has("checkpoint", key):
                store.drop("checkpoint", key)


def _reason(state: State[Any]) -> str:
    error = state.result(raise_on_failure=False)
    return f"{type(error).__name__}: {error}" if isinstance(error, Exception) else state.message or state.name or "?"


def _percent(done: int, total: int) -> float:
    return 100.0 * done / total if total else 100.0


def _publish(result: SweepResult, place: str) -> None:
    """The result in Prefect: the leaderboard as a table, and the whole as markdown."""
    key = f"eval-sweep-{''.join(c if c.isalnum() and c.isascii() else '-' for c in result.name.lower())}"
    create_markdown_artifact(markdown(result, place), key=key, description=f"sweep {result.name}")
    rows = seen(leaderboard_rows(result))
    create_table_artifact(rows, key=f"{key}-leaderboard", description=f"leaderboard of {result.name}")


def _failure_message(result: SweepResult, place: str) -> str:
    return "\n".join(
        [
            f"{len(result.failures)} of {len(result.cells)} cells of the sweep {result.name} failed:",
            *(f"  {cell}: {error}" for cell, error in result.failures.items()),
            f"The result of the others is in {place}. Run the same sweep again to continue with those that failed.",
        ]
    )
