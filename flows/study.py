"""Shared code of the flows for ablations and sweeps: missing cells are computed, and a result is made of all cells.

plan -> begin -> cells, sequentially or concurrently -> result -> record, drawing
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

from prefect.futures import PrefectFuture, as_completed
from prefect.logging import get_run_logger
from prefect.states import State

from starpo.ragen.core.errors import StarPOError
from starpo.ragen.core.redaction import without_secrets
from starpo.ragen.store import Store
from starpo.ragen.studies.result import StudyResult
from starpo.ragen.studies.studies import Studies

T = TypeVar("T")


class CellsFailedError(StarPOError):
    """Some cells of a study failed; the result of the others is stored."""


class StudyPlan(Protocol):
    """A validated study whose cells are named."""

    @property
    def name(self) -> str:
        """Name of the study."""

    @property
    def labels(self) -> list[str]:
        """Labels of its cells."""

    def result(self, store: Store, errors: Mapping[str, str]) -> StudyResult:
        """Read the cells' measurements and summarise them.

        Args:
            store: Where the cells are stored.
            errors: Label of a cell -> its error, for cells that failed.
        """


def finish(
    studies: Studies[Any, Any],
    plan: StudyPlan,
    store: Store,
    num_missing: int,
    endings: Iterable[tuple[str, str | None]],
) -> str:
    """Compute the missing cells, then create the result. A cell that fails does not stop the others.

    Args:
        studies: Where the result is saved.
        plan: The study, already begun.
        store: Where its cells are stored.
        num_missing: Number of cells to compute.
        endings: Computes them; yields each cell's label and its error, or None, as the cell ends.

    Returns:
        The study's name.

    Raises:
        CellsFailedError: If cells failed; the message names them.
    """
    log, what, total = get_run_logger(), f"{studies.word} {plan.name}", len(plan.labels)
    stored = total - num_missing
    log.info("%s: %d %s, %d of them stored", what, total, studies.cells, stored)
    errors = {}
    for number, (label, error) in enumerate(endings, start=stored + 1):
        if error is None:
            log.info("%d of %d: %s completed", number, total, label)
        else:
            errors[label] = error
            log.error("%d of %d: %s failed: %s", number, total, label, error)
    result = plan.result(store, errors)
    studies.save(result)
    if result.failures:
        lines = (f"  {label}: {error}" for label, error in result.failures.items())
        raise CellsFailedError(
            f"{len(result.failures)} of {total} {studies.cells} of the {what} failed:\n" + "\n".join(lines) + "\n"
            f"The result of the others is in {studies.place(plan.name)}. Run it again to retry those that failed."
        )
    return plan.name


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
