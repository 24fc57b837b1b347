"""Ablations as a flow: every cell and seed of a grid is a sub-flow `starpo`; stored results are not recomputed.

    grid -> plan_ablation (which runs are finished) -> starpo, one process per run -> ragen.studies.finish

With one process per run, a killed run does not affect the others, and each frees its memory. With STARPO_POOL = ray,
runs are tasks on the cluster instead (`flows.runners`).
"""

from collections import deque
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from typing import Any, cast
from uuid import UUID

from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.flow_engine import run_flow_in_subprocess
from prefect.logging import get_run_logger
from prefect.runtime import flow_run

from starpo.flows.ablation_plan import CellRun, is_finished, plan_ablation
from starpo.flows.flow_run import subflow_ended
from starpo.flows.runners import cell_runner, stop_with_parent
from starpo.flows.stage_task import stage_task
from starpo.flows.starpo import starpo
from starpo.flows.study import ended
from starpo.ragen.config.load import recorded_config
from starpo.ragen.config.runtime import Runtime
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import StarPOError
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.store import Store
from starpo.ragen.studies.finish import finish
from starpo.ragen.studies.grid import Grid
from starpo.ragen.studies.studies import Ablations
from starpo.tasks.first_checkpoint.stages import EMBEDDED
from starpo.tasks.loop.plan import RunPlan
from starpo.tasks.loop.rollback import final_run


@flow(name="ablation", validate_parameters=True)
def ablation(
    grid: Grid,
    config: dict[str, Any] | None = None,
    store: str | None = None,
    concurrency: int = 1,
    allow_few_seeds: bool = False,
) -> str:
    """Run a grid of settings over matched seeds and compare every cell with the base.

    Running it again continues it. A run that fails does not stop the others; in the end it fails the ablation.

    Args:
        grid: Base, axes and seeds.
        config: All settings of the base. None for those of the grid's preset or run.
        store: Store URL. None for that of the serving process (STARPO_STORE).
        concurrency: Maximum number of concurrent runs; they share this machine's cores.
        allow_few_seeds: Accept fewer than three seeds.

    Returns:
        The ablation's name; its result is in `<store>/ablations/<name>`.

    Raises:
        ConfigError: If the grid is invalid; nothing has been done in that case.
        CellsFailedError: If runs failed; the message names them.
    """
    opened = Store(store or Runtime.current().store)
    base = None if config is None else recorded_config(grid.name, config, "Give those of this release")
    plan, studies = plan_ablation(grid, opened, config=base, allow_few_seeds=allow_few_seeds), Ablations(opened.url)
    studies.begin(grid)
    plans = plan.plans(opened)
    missing = [run for run in plan.runs if not is_finished(opened, plans[run.name])]
    is_on_ray = Runtime.current().pool == "ray"
    if concurrency > 1 or is_on_ray:
        _share_first_checkpoints(opened, missing, plans)
    endings = _run_on_ray(opened, missing) if is_on_ray else _run_in_processes(opened, missing, max(1, concurrency))
    return finish(studies, plan, opened, len(missing), endings, get_run_logger())


def _share_first_checkpoints(store: Store, runs: Sequence[CellRun], plans: dict[str, RunPlan]) -> None:
    """Compute every warm start once in advance, so that concurrent runs do not all compute the same one."""
    first = {work: run for run in runs for work in plans[run.name].new if work.stage.name == EMBEDDED.name}
    for work, run in first.items():
        try:
            with ModelPlacement() as placement:
                stage_task(work, "warm start")(store.url, work, placement)
        except Exception as error:  # the runs that need it will fail likewise and be reported
            get_run_logger().warning("the warm start of run %s failed: %s", run.name, error)


def _run_on_ray(store: Store, runs: Sequence[CellRun]) -> Iterator[tuple[str, str | None]]:
    """Yield each run's name and its error, if it failed, as it ends; like `_run_in_processes`."""
    if not runs:
        return
    with cell_runner(len(runs)) as runner:
        futures = {}
        for run in runs:
            task = run_cell.with_options(task_run_name=run.name.replace("{", "{{").replace("}", "}}"))
            futures[runner.submit(task, _parameters(store, run))] = run.name
        yield from ended(futures)


@task(name="cell", cache_policy=NO_CACHE, persist_result=False)
def run_cell(config: StarPOConfig, preset: str, store: str, run: str) -> None:
    """Run the flow `starpo` as a sub-flow of a task, on any node where Ray schedules it."""
    starpo.with_options(flow_run_name=run)(config=config, preset=preset, store=store, run=run)


def _parameters(store: Store, run: CellRun) -> dict[str, Any]:
    return {"config": run.config, "preset": run.label, "store": store.url, "run": run.name}


def _run_in_processes(store: Store, runs: Sequence[CellRun], concurrency: int) -> Iterator[tuple[str, str | None]]:
    waiting = deque(runs)
    alive: dict[int, tuple[CellRun, datetime, SpawnProcess]] = {}
    try:
        while waiting or alive:
            while waiting and len(alive) < concurrency:
                run = waiting.popleft()
                begun = datetime.now(UTC)
                process = run_flow_in_subprocess(
                    starpo.with_options(flow_run_name=run.name, on_running=[stop_with_parent]),
                    parameters=_parameters(store, run),
                )
                alive[process.sentinel] = run, begun, process
            for sentinel in wait(list(alive)):
                run, begun, process = alive.pop(cast(int, sentinel))
                process.join()
                yield run.name, _error(store, run, begun, process.exitcode or 0)
    finally:
        for *_, process in alive.values():
            process.terminate()


def _error(store: Store, run: CellRun, begun: datetime, exit_code: int) -> str | None:
    """Return why a run whose process has ended is not completed; None if it is, perhaps as a fork.

    The store says whether it is, and Prefect why not, as a run may fail before it writes anything to the store.
    """
    how = f"was killed by signal {-exit_code}" if exit_code < 0 else f"ended with exit code {exit_code}"
    error = f"its process {how} before the run was finished"
    try:
        name = final_run(run.name, store.runs.names())
        state = store.runs.state(name)
        if state is not None and state.status == "completed" and state.heartbeat >= begun:
            return None
        outcome = subflow_ended(UUID(flow_run.id), {run.name, name}, error)
    except StarPOError as unknown:  # no reason to stop the other runs
        return f"{error}; why is not known: {unknown}"
    return outcome.reason if outcome and outcome.reason and outcome.status != "completed" else error
