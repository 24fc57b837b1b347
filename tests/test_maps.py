"""The maps in the docstrings of packages: `name  what it is` for every module, and for none that is not there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ENTRY = re.compile(r"\s*((?:\w+/?, )*\w+/?) {2,}\S")
"""`name  text`, `name, other  text` or `folder/  text`."""


def names_in(package: Path) -> tuple[str, list[str]]:
    """Return the docstring of a package, and the first words of its entries."""
    text = ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8"))) or ""
    entries = [match[1] for line in text.splitlines() if (match := ENTRY.match(line))]
    return text, [name.rstrip("/") for entry in entries for name in entry.split(", ")]


MAPS = [
    path.parent.relative_to(ROOT)
    for top in ("flows", "ragen", "schemas", "tasks")
    for path in sorted((ROOT / top).rglob("__init__.py"))
    if names_in(path.parent)[1]
]


@pytest.mark.parametrize("package", MAPS, ids=str)
def test_map_names_exactly_its_modules(package: Path) -> None:
    text, entries = names_in(ROOT / package)
    there = {path.stem for path in (ROOT / package).glob("*.py")} - {"__init__", "__main__"}
    there |= {path.parent.name for path in (ROOT / package).glob("*/__init__.py")}
    assert set(entries) <= there | {path.name for path in (ROOT / package).iterdir() if path.is_dir()}
    assert [name for name in sorted(there) if not re.search(rf"(?<![\w.]){name}(?!\w)", text)] == []


def test_maps_are_found() -> None:
    assert len(MAPS) > 30
