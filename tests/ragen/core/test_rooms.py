"""Rooms register themselves: what they declare exists, and the core, the loop and the list of commands name none."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from starpo.flows.cli.commands import COMMANDS
from starpo.ragen.core.lookup import resolve
from starpo.ragen.core.registry import PLUGGABLE
from starpo.ragen.core.rooms import declared, declared_folders

ROOT = Path(__file__).parents[3]
FILES = sorted((ROOT / "ragen").rglob("registrations.toml"))
ROOMS = [".".join(file.parent.relative_to(ROOT).parts) for file in FILES]
KINDS = [registry.group.removeprefix("starpo.") for registry in PLUGGABLE]


def test_every_file_is_found() -> None:
    assert {"ragen.studies", "ragen.sizing", "ragen.methods.programs", "ragen.envs.suites"} <= set(ROOMS)
    named = {target.partition(":")[0].removeprefix("starpo.") for target in declared("environments").values()}
    assert all(any(name.startswith(f"{room}.") for room in ROOMS) for name in named)
    assert declared_folders("grids") == [ROOT / "starpo/ragen/studies/grids"]


@pytest.mark.parametrize("room", ROOMS)
def test_the_core_names_no_room(room: str) -> None:
    core = [*(ROOT / "ragen/core").rglob("*.py"), *(ROOT / "tasks").rglob("*.py"), ROOT / "flows/cli/commands.py"]
    asks_sizes = {"tasks/loop/record.py", "tasks/loop/memory_check.py"} if room == "ragen.sizing" else set()
    named = re.compile(rf"\bstarpo\.{re.escape(room)}\b")
    naming = {str(file.relative_to(ROOT)) for file in core if named.search(file.read_text(encoding="utf-8"))}
    assert naming == asks_sizes


@pytest.mark.parametrize("kind", [kind for kind in KINDS if declared(kind)])
def test_declared_names_are_registered_and_load(kind: str) -> None:
    (registry,) = (registry for registry in PLUGGABLE if registry.group == f"starpo.{kind}")
    for name in declared(kind):
        assert registry.is_built_in(name)
        for target in (
            registry[name],
            *(getattr(registry[name], role, "") for role in ("options", "marks")),
        ):
            assert not target or callable(resolve(target)), name


def test_command_panel_place_matches_declaration() -> None:
    for name, command in declared("commands").items():
        assert COMMANDS[command["panel"]].index(name) == command["place"]


def test_no_group_is_misspelt() -> None:
    known = {*KINDS, "commands", "presets", "grids", "suites", "variants", "variants_to_complete"}
    for file in FILES:
        assert set(re.findall(r"^\[(\w+)", file.read_text(encoding="utf-8"), re.MULTILINE)) <= known, file


def test_reading_the_declarations_imports_no_room() -> None:
    code = "import sys\nimport starpo.ragen.core.registry\nprint(*sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert {name.split(".")[2] for name in shown.split() if name.startswith("starpo.ragen.")} == {"core"}
