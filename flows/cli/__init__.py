"""The `ragen` command. Every command imports what it needs inside itself, so that `--help` answers at once."""

import importlib
import os
import sys
import traceback
from typing import NoReturn

from starpo.flows.cli.common import app
from starpo.ragen.core.errors import StarPOError
from starpo.ragen.core.redaction import without_secrets
from starpo.ragen.core.visible import MAX_TEXT, shortened, visible

__all__ = ["app", "main"]

_MAX_MESSAGE = 4_000
"""Characters of an error message; its beginning says what is wrong, its end what to do."""

for _module in (
    "training",
    "plan",
    "catalogue",
    "new",
    "inspection",
    "audit",
    "online_k",
    "verify",
    "replay",
    "checkpoint",
    "evaluate",
    "eval_sweep",
    "ablation",
    "imports",
    "store",
    "serving",
):  # in the order of `ragen --help`
    importlib.import_module(f"starpo.flows.cli.{_module}")


def main() -> None:
    """Entry point: an error that a user can mend is one message and exit code 1, never a traceback.

    What else goes wrong is ours to mend: it ends in a traceback, whose text is as untrusted as any.
    """
    os.environ.setdefault("DO_NOT_TRACK", "1")  # Prefect would send usage data, and say so above every answer
    try:
        app()
    except StarPOError as error:
        _fail(f"error: {error}", _MAX_MESSAGE)
    except Exception:
        _fail(without_secrets(traceback.format_exc().rstrip()), MAX_TEXT)


def _fail(message: str, limit: int) -> NoReturn:
    """The door of all errors."""
    sys.stderr.write(visible(shortened(message, limit)) + "\n")
    sys.exit(1)
