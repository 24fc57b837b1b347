"""Evaluation sweeps as a flow: one task per cell; stored cells are not played again.

    sweep -> plan_sweep (which cells are missing) -> evaluate, one task per cell -> ragen.studies.finish

Cells are tasks with the tag `gpu`, so `prefect concurrency-limit create gpu N` limits how many run across all sweeps.
"""

from collections.abc import Iterator

from prefect import flow
from prefect.logging import get_run_logger
from prefect.task_runners import ThreadPoolTaskRunner

from starpo.flows.runners import cell_runner
from starpo.flows.stage_task import stage_task
from starpo.flows.study import ended
from starpo.flows.sweep_plan import SweepPlan, plan_sweep
from starpo.ragen.config.runtime import Runtime
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.store import Store
from starpo.ragen.studies.finish import finish
from starpo.ragen.studies.studies import Sweeps
from starpo.ragen.studies.sweep import Sweep

CELL_TAG = "gpu"
"""Tag of every cell's task; a Prefect concurrency limit of this name bounds how many run concurrently."""


@flow(name="eval-sweep", validate_parameters=True)
def eval_sweep(sweep: Sweep, store: str | None = None, concurrency: int = 1) -> str:
    """Evaluate checkpoints x environments x temperatures x seeds; running it again evaluates the missing cells.

    A cell that fails does not stop the others; in the end it fails the sweep.

    Args:
        sweep: Checkpoints, environments, temperatures and seeds.
        store: Store URL. None for that of the serving process (STARPO_STORE).
        concurrency: Maximum number of concurrent cells.

    Returns:
        The sweep's name; its result is in `<store>/sweeps/<name>`.

    Raises:
        ConfigError: If the sweep is invalid; nothing has been done in that case.
        CellsFailedError: If cells failed; the message names them.
    """
    opened = Store(store or Runtime.current().store)
    plan, studies = plan_sweep(opened, sweep), Sweeps(opened.url)
    studies.begin(sweep)
    for run, what in plan.waiting.items():
        get_run_logger().info("run %s does not have %s yet; a later sweep will find it", run, what)
    endings = _ended(opened, plan, studies, max(1, concurrency))
    return finish(studies, plan, opened, len(plan.missing), endings, get_run_logger())


def _ended(store: Store, plan: SweepPlan, studies: Sweeps, concurrency: int) -> Iterator[tuple[str, str | None]]:
    """Evaluate the missing cells and yield each cell's label and its error, if it failed, as it ends.

    Dropped checkpoints are first derived and put back into the store, where the cells' processes find them.
    """
    measured = {planned.label: planned.work.keys for planned in plan.cells if planned.is_stored}
    studies.name_cells(plan.name, measured)
    if not plan.missing:
        return
    # a sweep over a long run must not keep all of its weights
    with (
        ModelPlacement() as placement,
        placement.learner.restored(store, plan.dropped(store)),
        cell_runner(concurrency) as runner,
    ):
        shared = placement if isinstance(runner, ThreadPoolTaskRunner) else None
        futures = {}
        for planned in plan.missing:
            task = stage_task(planned.work, planned.label, tags={CELL_TAG})
            parameters = {"store_url": store.address, "work": planned.work, "placement": shared}
            futures[runner.submit(task, parameters)] = planned
        for planned, error in ended(futures):
            if error is None:
                measured[planned.label] = planned.work.keys
                studies.name_cells(plan.name, measured)
            yield planned.label, error
