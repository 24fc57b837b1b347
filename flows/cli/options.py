"""Options and arguments shared by commands, and their conversion to the library's types."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from starpo.ragen.core.errors import NoVerdictError, StarPOError

if TYPE_CHECKING:
    from starpo.ragen.store import Store

_INTERRUPTED = 130
"""Conventional exit code of a command that was ended by Ctrl-C."""


def _given(url: str | None) -> str | None:
    """Check a store's address; an empty one, such as from an unset shell variable, is rejected, not the default."""
    from starpo.ragen.store.remote.redaction import check_address

    return url if url is None else check_address(url)


StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store", callback=_given, help="Store: a folder or an fsspec URL. Default: STARPO_STORE, or var/store."
    ),
]
SetOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="PATH=VALUE", help="A setting by dotted path; may be repeated.")
]
MethodOption = Annotated[
    str | None,
    typer.Option("--method", help="Settings of a whole method, applied before --set; `starpo presets --methods`."),
]
JsonOption = Annotated[
    bool, typer.Option("--json", is_eager=True, help="Print JSON; `starpo schema` describes it. Progress is on stderr.")
]
SettingsOption = Annotated[bool, typer.Option("--settings", help="Only print what the settings resolve to, as JSON.")]
LocalOption = Annotated[
    bool, typer.Option("--local", help="Train in this process, without a server: clusters, debuggers.")
]
RunArgument = Annotated[str, typer.Argument(help="Name of the run; `starpo runs` lists them.")]


@contextmanager
def judging() -> Iterator[None]:
    """Turn errors into `NoVerdictError`, in a command whose exit code 1 is a verdict."""
    try:
        yield
    except StarPOError as error:
        raise NoVerdictError(str(error)) from error


@contextmanager
def stoppable(is_local: bool) -> Iterator[None]:
    """Let a run in this process, if it is one, end in order on SIGTERM as on Ctrl-C, with a message and exit code 130.

    Raises:
        SystemExit: If it was stopped.
    """
    if not is_local:
        yield
        return

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except KeyboardInterrupt:
        sys.stderr.write("\nstopped; what the run stored is kept, and the same command continues it\n")
        sys.exit(_INTERRUPTED)
    finally:
        signal.signal(signal.SIGTERM, before)


def open_store(url: str | None) -> "Store":
    """Open the store at this URL, or the configured one."""
    from starpo.flows.console.stores import open_store

    return open_store(url)


def parse_overrides(assignments: list[str] | None, method: str | None = None) -> dict[str, Any]:
    """Parse all `--set PATH=VALUE` options, applied on top of the settings of a method."""
    from starpo.flows.presets import method as method_settings
    from starpo.ragen.config import load

    return {**(method_settings(method) if method else {}), **load.parse_overrides(assignments or [])}
