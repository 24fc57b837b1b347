"""A registered environment that cannot be loaded: commands without it work, commands that need it name the fault."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from starpo.ragen.core import registry
from starpo.ragen.core.errors import RegistryError
from starpo.ragen.core.faults import describe_fault
from starpo.ragen.core.lookup import load
from starpo.ragen.core.settings import named_settings
from starpo.ragen.envs.make import settings_type

REGISTERING = """
from starpo.ragen.core.registry import ENVIRONMENTS

ENVIRONMENTS["gridworld"] = "gridworld:GridWorld"
ENVIRONMENTS.packages["gridworld"] = "gridworld 0.1"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Folder for a command's import path that registers a faulty environment besides the existing ones."""
    (tmp_path / "gridworld.py").write_text("import numpy as np\n\n\ndef step(:\n")
    (tmp_path / "sitecustomize.py").write_text(REGISTERING)
    return tmp_path


def ragen(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(folder), *filter(None, sys.path)])
    env = {
        **os.environ,
        "PYTHONPATH": path,
        "STARPO_STATE_DIR": str(folder / "state"),
        "STARPO_STORE": str(folder / "store"),
    }
    return subprocess.run(
        [sys.executable, "-m", "starpo.flows.cli", *arguments],
        cwd=folder, env=env, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


@pytest.mark.ci
@pytest.mark.parametrize(
    ("command", "answer"),
    [(("runs",), "no runs"), (("validate", "smoke"), "valid")],
)
def test_commands_without_environment_still_work(folder: Path, command: tuple[str, ...], answer: str) -> None:
    result = ragen(folder, *command)
    assert (result.returncode, result.stderr) == (0, "")
    assert answer in result.stdout


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import nosuch_module\n", "faulty.py, line 1: ModuleNotFoundError: No module named 'nosuch_module'"),
        ("\nLEFT = 1 / 0\n", "faulty.py, line 2: ZeroDivisionError: division by zero"),
        ("GridWorlds = 1\n", "AttributeError: module 'faulty' has no attribute 'GridWorld'"),
        ("class GridWorld:\n    pass\n", "expected a class derived from starpo.ragen.envs.base.Environment"),
        (
            "from starpo.ragen.envs.base import Environment\nclass GridWorld(Environment):\n    settings_type = dict\n",
            "settings_type = <class 'dict'>; expected a class derived from starpo.ragen.envs.base.EnvironmentSettings",
        ),
    ],
)
def test_fault_is_reported_to_every_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, message: str
) -> None:
    (tmp_path / "faulty.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "faulty", raising=False)
    monkeypatch.setitem(registry.ENVIRONMENTS, "faulty", "faulty:GridWorld")
    with pytest.raises(ValidationError) as refused:
        TypeAdapter(named_settings(["faulty"], settings_type)).validate_python({"type": "faulty", "size": 3})
    assert message in str(refused.value)
    monkeypatch.delitem(sys.modules, "faulty", raising=False)


def test_unloadable_registered_object_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_filters.py").write_text("import numpy\nraise RuntimeError('no licence')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(RegistryError, match=r"'mine' .*my_filters.py, line 2: RuntimeError: no licence"):
        load({"mine": "my_filters:keep"}, "mine")


def test_fault_elsewhere_names_the_calling_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "asks.py").write_text("import json\njson.loads('{')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match="Expecting") as raised:
        __import__("asks")
    assert describe_fault(raised.value, "asks").startswith(f"{tmp_path}/asks.py, line 2: JSONDecodeError: Expecting")


@pytest.mark.ci
def test_module_exiting_process_is_a_fault(folder: Path) -> None:
    (folder / "gridworld.py").write_text("import sys\n\nsys.exit(0)\n")
    result = ragen(folder, "validate", "smoke", "--set", "environment.type=gridworld")
    assert result.returncode == 1
    assert f"{folder}/gridworld.py, line 3: SystemExit: sys.exit(0) was called" in result.stderr
    assert "Traceback" not in result.stderr
