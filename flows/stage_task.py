"""The Prefect task that carries out any stage.

Work --stage_task--> task run named after it, retried after I/O failures --> kind -> key
"""

from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.tasks import Task, exponential_backoff

from starpo.ragen.core.errors import is_transient
from starpo.ragen.core.faults import redacted
from starpo.ragen.runs.work import Keys, Work
from starpo.ragen.store import Store


def is_io_failure(_task: Task[..., Any], _run: TaskRun, state: State[Any]) -> bool:
    """Whether a task failed because of I/O and may be retried."""
    error = state.result(raise_on_failure=False)
    return isinstance(error, BaseException) and is_transient(error)


@task(
    cache_policy=NO_CACHE,  # the store's own keys decide what is done again
    persist_result=False,
    retries=3,
    retry_delay_seconds=exponential_backoff(backoff_factor=1),
    retry_jitter_factor=0.5,
    retry_condition_fn=is_io_failure,
)
def _carry_out(store_url: str, work: Work) -> Keys:
    try:
        return work.carry_out(Store(store_url))
    except Exception as error:
        safe = redacted(error)
        if safe is not error:
            raise safe from None
        raise


def stage_task(work: Work, title: str, tags: set[str] | None = None) -> Task[[str, Work], Keys]:
    """Return the task that carries out this work; its arguments are the store's address and the work.

    Args:
        work: The work.
        title: Title of the task run.
        tags: Tags of the task, such as those that a concurrency limit counts.
    """
    title = title.replace("{", "{{").replace("}", "}}")  # Prefect treats it as a format string
    return _carry_out.with_options(name=work.stage.name, task_run_name=title, tags=tags)
