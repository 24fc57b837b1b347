"""Handling of Ctrl-C while a run is watched: the run continues in its own process, and a message says so."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from starpo.flows.console.terminal import Console, say

_INTERRUPTED = 130
"""Conventional exit code of a command that was ended by Ctrl-C."""


@contextmanager
def watching(console: Console, what: str, *advice: str) -> Iterator[None]:
    """Watch something that continues without this command.

    Args:
        console: Console for the message.
        what: What is watched, such as `run mine`.
        advice: Lines of advice on what to do next.

    Raises:
        SystemExit: On Ctrl-C, with exit code 130.
    """
    try:
        yield
    except KeyboardInterrupt:
        say(console, f"\n{what} continues; only this command has stopped watching it.")
        for line in advice:
            say(console, f"  {line}")
        sys.exit(_INTERRUPTED)


def advice_on(run: str, store: str | None) -> tuple[str, str]:
    """Return the commands to follow a run and to stop it.

    Args:
        run: The run's name.
        store: The store as given by the user. None for the configured one.
    """
    where = f" --store {store}" if store is not None else ""
    return f"follow it:  starpo follow {run}{where}", f"stop it:    starpo cancel {run}{where}"
