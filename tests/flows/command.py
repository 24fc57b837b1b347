"""The command `starpo`, run in this process: importing everything again takes longer than most commands."""

import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
import typer.rich_utils  # noqa: F401  (whoever imports it first decides by FORCE_COLOR for all later tests)

from starpo.flows import cli

Result = subprocess.CompletedProcess[str]


def ragen(*arguments: str, cwd: Path | None = None, **env: str) -> Result:
    """Run the command with these arguments, in this folder, with these environment variables."""
    out, err, status = StringIO(), StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["starpo", *arguments])
        if cwd is not None:
            patch.chdir(cwd)
        for name, value in env.items():
            patch.setenv(name, value)
        try:
            cli.main()
        except SystemExit as end:
            status = int(end.code or 0)
    return Result(arguments, status, out.getvalue(), err.getvalue())
