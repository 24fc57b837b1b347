"""Rooms: parts of this project that a run enters only by name. What each of them registers stands in its own folder.

    ragen/<room>/registrations.toml -> declared(group): name -> target or table -> `Registry`, commands, presets

The groups are those of entry points (docs/extend.md), without `starpo.`. A room is found by its file, so that nothing
outside names it, and the file is data, so that nothing is imported to read it.
"""

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

_FILE = "registrations.toml"
_RAGEN = Path(__file__).parents[1]


@cache
def _rooms() -> dict[Path, dict[str, Any]]:
    """Folder of each room -> its groups, in the order of folders."""
    files = sorted(file for depth in ("*", "*/*") for file in _RAGEN.glob(f"{depth}/{_FILE}"))
    return {file.parent: tomllib.loads(file.read_text(encoding="utf-8")) for file in files}


def declared(group: str) -> dict[str, Any]:
    """Return what the rooms declare in a group: name -> `module:attribute`, or a table of properties."""
    return {name: value for groups in _rooms().values() for name, value in groups.get(group, {}).items()}


def declared_folders(group: str) -> list[Path]:
    """Return the folders of TOML files that the rooms declare in a group, by `folder`, a name in the room's own."""
    return [room / groups[group]["folder"] for room, groups in _rooms().items() if group in groups]
