"""The Prefect task that carries out any stage.

Work --stage_task--> task run named after it, retried after I/O failures --> kind -> key
"""

from functools import cache
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.tasks import Task, exponential_backoff

from starpo.ragen.core.errors import is_transient
from starpo.ragen.core.faults import redacted
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.runs.work import Keys, Work
from starpo.ragen.store import Store


def is_io_failure(_task: Task[..., Any], _run: TaskRun, state: State[Any]) -> bool:
    """Whether a task failed because of I/O and may be retried."""
    error = state.result(raise_on_failure=False)
    return isinstance(error, BaseException) and is_transient(error)


@cache
def _cell_placement() -> ModelPlacement:
    """Return the placement of a process that carries out cells alone, one after another, and ends with them.

    Models stay loaded from cell to cell. They cannot come with a cell, as its arguments are pickled.
    """
    return ModelPlacement()


@task(
    cache_policy=NO_CACHE,  # the store's own keys decide what is done again
    persist_result=False,
    retries=3,
    retry_delay_seconds=exponential_backoff(backoff_factor=1),
    retry_jitter_factor=0.5,
    retry_condition_fn=is_io_failure,
)
def _carry_out(store_url: str, work: Work, placement: ModelPlacement | None) -> Keys:
    try:
        return work.carry_out(Store(store_url), placement or _cell_placement())
    except Exception as error:
        safe = redacted(error)
        if safe is not error:
            raise safe from None
        raise


def stage_task(work: Work, title: str, tags: set[str] | None = None) -> Task[[str, Work, ModelPlacement | None], Keys]:
    """Return the task that carries out this work.

    Its arguments are the store's address, the work, and where to play and learn: None in a process of its own.

    Args:
        work: The work.
        title: Title of the task run.
        tags: Tags of the task, such as those that a concurrency limit counts.
    """
    title = title.replace("{", "{{").replace("}", "}}")  # Prefect treats it as a format string
    return _carry_out.with_options(name=work.stage.name, task_run_name=title, tags=tags)
