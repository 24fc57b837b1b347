"""Progress of a command on standard error: `progress_bar` by number, `status_line` in words.

Without a terminal, a line says every `PLAIN_EVERY_S` seconds what is done, however long one item takes.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskProgressColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from starpo.flows.console.terminal import Console, description_column, plain, say

PLAIN_EVERY_S = 15.0
"""Seconds between lines without a terminal."""

COUNTED = (MofNCompleteColumn, TimeElapsedColumn)
"""For few slow items: number done, and elapsed time."""

SHARE = (TaskProgressColumn, TimeRemainingColumn)
"""For many items of similar size: share done, and remaining time."""


@contextmanager
def progress_bar(what: str, columns: tuple[type[ProgressColumn], ...]) -> Iterator[Callable[..., None]]:
    """Show a progress bar that disappears when the work is done; without a terminal, lines.

    Args:
        what: The work, in a word or two.
        columns: Columns after the bar.

    Yields:
        Callback that takes the amount done, the total, and optionally a description of the current item.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        with _repeated(console, what) as tell:
            yield lambda done, total, now=None: tell(f"{now or what}: {done} of {total}")
        return
    all_columns = (description_column(), BarColumn(), *(column() for column in columns))
    with Progress(*all_columns, console=console, transient=True) as progress:
        bar = progress.add_task(what, total=None)
        yield lambda done, total, now=None: progress.update(bar, completed=done, total=total, description=now)


@contextmanager
def status_line(what: str) -> Iterator[Callable[[str], None]]:
    """Show what is done now, beside a spinner that disappears when the work is done; without a terminal, in lines.

    Args:
        what: What is done first.

    Yields:
        Callback that takes what is done next.
    """
    console = Console(stderr=True)
    if console.is_terminal:
        with console.status(what) as status:
            yield lambda now: status.update(plain(now))
        return
    with _repeated(console, what) as tell:
        yield tell


@contextmanager
def _repeated(console: Console, first: str) -> Iterator[Callable[[str], None]]:
    now, is_over = [first], Event()

    def repeat() -> None:
        while not is_over.wait(PLAIN_EVERY_S):
            say(console, now[0])

    Thread(target=repeat, daemon=True).start()
    try:
        yield lambda what: now.__setitem__(0, what)
    finally:
        is_over.set()
