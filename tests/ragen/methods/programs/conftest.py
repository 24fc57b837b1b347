"""A folder to run programs in, and settings of small programs."""

import json
import sys
import textwrap
from pathlib import Path

import pytest

from starpo.ragen.methods.programs.settings import ProgramSettings


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """The working folder, whose modules can be imported here and by programs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps({"n": n}) + "\n" for n in range(5)))
    return tmp_path


@pytest.fixture
def program(folder):
    """Settings of a program of some lines of Python; further settings by name."""

    def make(code: str, **settings) -> ProgramSettings:
        (folder / "agent.py").write_text(textwrap.dedent(code))
        return ProgramSettings(**{"command": [sys.executable, "agent.py"], "tasks": "tasks.jsonl"} | settings)

    return make
