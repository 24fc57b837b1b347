"""The end of a study: its missing cells are computed, wherever that is, and a result is made of all of them.

plan -> begin -> cells, sequentially or concurrently -> finish: result -> record, drawing
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from starpo.ragen.core.errors import StarPOError
from starpo.ragen.store import Store
from starpo.ragen.studies.result import StudyResult
from starpo.ragen.studies.studies import Studies


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
    log: logging.Logger | logging.LoggerAdapter[Any],
) -> str:
    """Compute the missing cells, then create the result. A cell that fails does not stop the others.

    Args:
        studies: Where the result is saved.
        plan: The study, already begun.
        store: Where its cells are stored.
        num_missing: Number of cells to compute.
        endings: Computes them; yields each cell's label and its error, or None, as the cell ends.
        log: Told of every cell that ends.

    Returns:
        The study's name.

    Raises:
        CellsFailedError: If cells failed; the message names them.
    """
    what, total = f"{studies.word} {plan.name}", len(plan.labels)
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
