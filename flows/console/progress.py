"""`progress_bar`: how far a command is, on the error stream of a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskProgressColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from starpo.flows.console.terminal import Console, description_column

COUNTED = (MofNCompleteColumn, TimeElapsedColumn)
"""Few items that take long: how many are done, and the time that went by."""

SHARE = (TaskProgressColumn, TimeRemainingColumn)
"""Many of much the same size: the share that is done, and the time that is left."""


@contextmanager
def progress_bar(what: str, columns: tuple[type[ProgressColumn], ...]) -> Iterator[Callable[..., None]]:
    """A bar that goes when the work is done; none where the error stream is no terminal.

    Args:
        what: The work, in a word or two.
        columns: What stands behind the bar.

    Yields:
        To be told how much is done, of how much, and what is at work now, if that is to be shown.
    """
    all_columns = (description_column(), BarColumn(), *(column() for column in columns))
    console = Console(stderr=True)
    with Progress(*all_columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task(what, total=None)

        def show(done: int, total: int, now: str | None = None) -> None:
            progress.update(bar, completed=done, total=total, description=now)

        yield show
