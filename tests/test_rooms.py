"""The table of rooms in docs/reading.md: what each imports, as it is in the code."""

import re
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[1]
ROW = re.compile(r"^\| `([\w/]+)` \| [^|]+ \| ([^|]+) \| [^|]+ \|$", re.MULTILINE)
TEXT = (ROOT / "docs/reading.md").read_text(encoding="utf-8").partition("## Rooms that you may ignore")[2]
TABLE = {room: imports.split(", ") for room, imports in ROW.findall(TEXT)}
EVERYWHERE = {"core", "schemas"}


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    return grimp.build_graph("starpo", exclude_type_checking_imports=True, cache_dir=None)


def place(module: str) -> str:
    """Return the room of a module, or its folder in `ragen`."""
    path = module.removeprefix("starpo.").removeprefix("ragen.").replace(".", "/")
    return next((room for room in TABLE if f"{path}/".startswith(f"{room}/")), path.partition("/")[0])


def test_declarations_are_in_the_table() -> None:
    files = (ROOT / "ragen").rglob("registrations.toml")
    declaring = {str(file.parent.relative_to(ROOT / "ragen")) for file in files}
    assert declaring <= {*TABLE, "methods"}
    assert {room for room in TABLE if room.startswith("methods/")} == {
        f"methods/{path.stem}"
        for path in (ROOT / "ragen/methods").iterdir()
        if path.stem[0] != "_" and path.suffix != ".toml"
    }


@pytest.mark.parametrize("room", TABLE)
def test_imports_match_the_table(graph: grimp.ImportGraph, room: str) -> None:
    modules = [module for module in graph.modules if module.startswith("starpo.ragen.") and place(module) == room]
    assert modules
    imported = {place(other) for module in modules for other in graph.find_modules_directly_imported_by(module)}
    assert sorted(imported - {room} - EVERYWHERE) == TABLE[room]
