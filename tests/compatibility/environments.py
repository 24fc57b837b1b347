"""Virtual environments with packages that the main one does not have, each made once under `.venv-frameworks`."""

import subprocess
import sys
from pathlib import Path

import pytest

ENVIRONMENTS = Path(__file__).parents[2] / ".venv-frameworks"


def make_python(name: str, packages: list[str]) -> Path:
    """Return the interpreter of an environment with these packages from PyPI; skip the test if they cannot be had."""
    folder = ENVIRONMENTS / name
    python, done = folder / "bin" / "python", folder / ".installed"
    if not done.exists():
        install([sys.executable, "-m", "venv", "--clear", str(folder)], Path.cwd())
        install([str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages], Path.cwd())
        done.touch()
    return python


def install(command: list[str], folder: Path) -> None:
    """Run an installation in a folder; skip the test if it fails."""
    installed = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if installed.returncode:
        pytest.skip(f"{' '.join(command)}: {installed.stderr[-300:]}")
