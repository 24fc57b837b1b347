"""`progress_bar`: progress of a command, on the standard error of a terminal."""

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
"""For few slow items: number done, and elapsed time."""

SHARE = (TaskProgressColumn, TimeRemainingColumn)
"""For many items of similar size: share done, and remaining time."""


@contextmanager
def progress_bar(what: str, columns: tuple[type[ProgressColumn], ...]) -> Iterator[Callable[..., None]]:
    """Show a progress bar that disappears when the work is done; none if standard error is not a terminal.

    Args:
        what: The work, in a word or two.
        columns: Columns after the bar.

    Yields:
        Callback that takes the amount done, the total, and optionally a description of the current item.
    """
    all_columns = (description_column(), BarColumn(), *(column() for column in columns))
    console = Console(stderr=True)
    with Progress(*all_columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task(what, total=None)

        def show(done: int, total: int, now: str | None = None) -> None:
            progress.update(bar, completed=done, total=total, description=now)

        yield show
