"""The tasks of a study's cells, as they end.

futures --ended--> (cell, its error) -> ragen.studies.finish
"""

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from prefect.futures import PrefectFuture, as_completed
from prefect.states import State

from starpo.ragen.core.redaction import without_secrets

T = TypeVar("T")


def ended(futures: Mapping[PrefectFuture[Any], T]) -> Iterator[tuple[T, str | None]]:
    """Yield what each task is for, and its error, if it failed, as it ends."""
    for future in as_completed(list(futures)):
        future.wait()  # sets its final state
        yield futures[future], _failure(future.state)


def _failure(state: State[Any]) -> str | None:
    """Return why a task did not complete; None if it completed."""
    if state.is_completed():
        return None
    error = state.result(raise_on_failure=False)
    return (
        f"{type(error).__name__}: {without_secrets(str(error))}"
        if isinstance(error, Exception)
        else state.message or state.name or "?"
    )
