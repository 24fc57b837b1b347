"""Ctrl-C while a run is watched: the run is another process's and goes on, which is said."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from starpo.flows.console.terminal import Console, say

_INTERRUPTED = 130
"""Exit code of a command that was ended by Ctrl-C, as shells have it."""


@contextmanager
def watching(console: Console, what: str, *advice: str) -> Iterator[None]:
    """Watch something that goes on without this command.

    Args:
        console: Where to say so.
        what: Such as `run mine`.
        advice: Lines about what can be done.

    Raises:
        SystemExit: On Ctrl-C, with the exit code 130.
    """
    try:
        yield
    except KeyboardInterrupt:
        say(console, f"\n{what} continues; only this command has stopped watching it.")
        for line in advice:
            say(console, f"  {line}")
        sys.exit(_INTERRUPTED)


def advice_on(run: str, store: str | None) -> tuple[str, str]:
    """How to follow a run and how to stop it.

    Args:
        run: Its name.
        store: The store as the user named it. None: the configured one.
    """
    where = f" --store {store}" if store is not None else ""
    return f"follow it:  ragen follow {run}{where}", f"stop it:    ragen cancel {run}{where}"
