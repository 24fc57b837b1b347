"""What ablations and sweeps have in common as flows: what is not stored is done, and a result is made of what is.

plan -> begin -> cells, one after the other or side by side -> result -> record, drawing, Prefect artifacts
"""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from prefect.artifacts import (
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.logging import get_run_logger
from prefect.states import State

from starpo.flows.markdown import artifact_key, code, dict_table, seen, text
from starpo.ragen.core.errors import StarPOError
from starpo.ragen.store import Store
from starpo.ragen.studies.result import StudyResult
from starpo.ragen.studies.studies import Studies


class CellsFailedError(StarPOError):
    """Some cells of a study failed; the result of the others is stored."""


class StudyPlan(Protocol):
    """A study with everything in it checked and named."""

    @property
    def name(self) -> str:
        """Of the study."""

    @property
    def labels(self) -> list[str]:
        """Of its cells."""

    def result(self, store: Store, errors: Mapping[str, str]) -> StudyResult:
        """Read what the cells measured, and summarise it.

        Args:
            store: Where they are.
            errors: Label of a cell -> why it failed.
        """


def finish(
    studies: Studies[Any, Any],
    plan: StudyPlan,
    store: Store,
    num_missing: int,
    ended: Iterable[tuple[str, str | None]],
) -> str:
    """Do what is missing, and make and publish the result. A cell that fails does not stop the others.

    Args:
        studies: Where the result goes.
        plan: The study; it has begun.
        store: Where its cells are.
        num_missing: Cells that are to be done.
        ended: Does them; yields the label of each, and why it failed if it did, as it ends.

    Returns:
        The study's name.

    Raises:
        CellsFailedError: If cells failed; the message names them.
    """
    log, what, total = get_run_logger(), f"{studies.word} {plan.name}", len(plan.labels)
    stored = total - num_missing
    log.info("%s: %d %s, %d of them stored", what, total, studies.cells, stored)
    progress: Any = create_progress_artifact(_percent(stored, total), description=what)
    errors = {}
    for number, (label, error) in enumerate(ended, start=stored + 1):
        if error is None:
            log.info("%d of %d: %s completed", number, total, label)
        else:
            errors[label] = error
            log.error("%d of %d: %s failed: %s", number, total, label, error)
        update_progress_artifact(progress, _percent(number, total))
    result = plan.result(store, errors)
    studies.save(result)
    _publish(studies, result)
    if result.failures:
        lines = (f"  {label}: {error}" for label, error in result.failures.items())
        raise CellsFailedError(
            f"{len(result.failures)} of {total} {studies.cells} of the {what} failed:\n" + "\n".join(lines) + "\n"
            f"The result of the others is in {studies.place(plan.name)}. Run it again to retry those that failed."
        )
    return plan.name


def failure(state: State[Any]) -> str | None:
    """Why a task did not complete; None: it did."""
    if state.is_completed():
        return None
    error = state.result(raise_on_failure=False)
    return f"{type(error).__name__}: {error}" if isinstance(error, Exception) else state.message or state.name or "?"


def markdown(studies: Studies[Any, Any], result: StudyResult) -> str:
    """A result as a page for Prefect."""
    parts = [f"# {studies.word.capitalize()} {text(result.name)}"]
    if conclusion := type(studies).conclude(result):
        parts += ["", text(conclusion)]
    for table in type(studies).tables(result):
        parts += ["", f"## {text(table.title)}", "", *(dict_table(table.rows) if table.rows else ["Nothing yet."])]
    if result.failures:
        rows = [{studies.cells: label, "error": error} for label, error in result.failures.items()]
        parts += ["", f"## Failed {studies.cells}", "", *dict_table(rows)]
    notes = [f"- {text(note)}" for note in (type(studies).method(result), *result.warnings)]
    return "\n".join([*parts, "", *notes, "", f"Stored in {code(studies.place(result.name))}."])


def _publish(studies: Studies[Any, Any], result: StudyResult) -> None:
    """The result in Prefect: its first table, and the whole as markdown."""
    what = f"{studies.word} {result.name}"
    key = artifact_key(what)
    create_markdown_artifact(markdown(studies, result), key=key, description=what)
    create_table_artifact(seen(type(studies).tables(result)[0].rows), key=f"{key}-table", description=what)


def _percent(done: int, total: int) -> float:
    return 100.0 * done / total if total else 100.0
