"""The `ragen` command. Every command imports what it needs inside itself, so that `--help` answers at once."""

import importlib
import os
import sys

from flows.cli.common import app
from ragen.errors import StarPOError

__all__ = ["app", "main"]

for _module in (
    "training",
    "inspection",
    "verify",
    "evaluate",
    "replay",
    "checkpoint",
    "online_k",
    "ablation",
    "eval_sweep",
    "plan",
    "store",
    "audit",
    "imports",
    "catalogue",
):  # in the order of `ragen --help`
    importlib.import_module(f"flows.cli.{_module}")


def main() -> None:
    """Entry point: an error that a user can mend is one message and exit code 1, never a traceback."""
    os.environ.setdefault("DO_NOT_TRACK", "1")  # Prefect would send usage data, and say so above every answer
    try:
        app()
    except StarPOError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(1)
