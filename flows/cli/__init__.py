"""The `starpo` command: one file per command, listed in `commands`; shared output code is in `flows.console`."""

import codecs
import errno
import io
import json
import os
import sys
import traceback
from typing import Annotated, NoReturn

import typer

from starpo.flows.cli.commands import STYLE, Commands, unusable
from starpo.ragen.core.allocator import bound_arenas
from starpo.ragen.core.errors import NoVerdictError, StarPOError
from starpo.ragen.core.redaction import without_secrets
from starpo.ragen.core.visible import MAX_TEXT, shortened, visible

__all__ = ["app", "main"]

_MAX_MESSAGE = 4_000
"""Maximum number of characters of an error message; its beginning states the problem, its end the remedy."""

app = typer.Typer(
    name="starpo",
    help="Train language-model agents with StarPO; every stage is stored, validated and replayable.",
    no_args_is_help=True,
    cls=Commands,
    epilog=unusable() or None,
    **{**STYLE, "add_completion": True},  # type: ignore[arg-type]
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        from starpo.flows.console.terminal import write

        try:
            write(f"starpo {version('starpo')}")
        except PackageNotFoundError:
            from starpo.ragen.store.artifacts.provenance import code_revision

            write(f"starpo, not installed, at commit {code_revision() or 'unknown'}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Entry point: an error that the user can fix is one message and exit code 1, never a traceback.

    The exit code is 2 where 1 would be the verdict of a check, as it is for options that typer refuses.
    Any other error is a bug and prints a traceback, whose text is sanitised like any untrusted text.
    """
    bound_arenas()
    _escape_unencodable()
    os.environ.setdefault("DO_NOT_TRACK", "1")  # otherwise Prefect sends usage data and prints a notice each time
    try:
        app()
    except StarPOError as error:
        _fail(f"error: {error}", _MAX_MESSAGE, 2 if isinstance(error, NoVerdictError) else 1)
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            _fail(f"error: no space is left for {error.filename or 'standard output'}", _MAX_MESSAGE, 1)
        _fail(without_secrets(traceback.format_exc().rstrip()), MAX_TEXT, 1)


def _escape_unencodable() -> None:
    """Have standard output write characters that its encoding lacks as `\\uXXXX`, which JSON reads as the same."""

    def escape(error: UnicodeError) -> tuple[str, int]:
        assert isinstance(error, UnicodeEncodeError)
        return json.dumps(error.object[error.start : error.end])[1:-1], error.end

    codecs.register_error("starpo", escape)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="starpo")


def _fail(message: str, limit: int, code: int) -> NoReturn:
    """Print a sanitised error message and exit."""
    sys.stderr.write(visible(shortened(message, limit)) + "\n")
    sys.exit(code)
