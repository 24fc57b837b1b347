"""What sweeps have measured, as far as the store must know it: their cells' artifacts are needed, like those of runs.

<store>/sweeps/<name>/cells.json    cell -> {kind: key}
"""

import json
from collections.abc import Mapping

from pydantic import TypeAdapter, ValidationError

from starpo.ragen.core.errors import ArtifactDamagedError
from starpo.ragen.store.names import checked_name
from starpo.ragen.store.records.runs import StageKeys
from starpo.ragen.store.remote.location import Location

FOLDER = "sweeps"
_FILE = "cells.json"
_CELLS = TypeAdapter(StageKeys)


def sweep_names(location: Location) -> list[str]:
    """Names of the sweeps that have begun."""
    return [name for name in location.names(FOLDER) if _FILE in location.names(f"{FOLDER}/{name}")]


def named_cells(location: Location, name: str) -> StageKeys:
    """Cell -> {kind: key} of what a sweep has measured; empty where there is no such sweep.

    Raises:
        ArtifactDamagedError: If the record cannot be read.
    """
    path = _path(name)
    try:
        return _CELLS.validate_json(location.read(path), strict=True)
    except FileNotFoundError:
        return {}
    except ValidationError as error:
        raise ArtifactDamagedError(
            f"{location.name.rstrip('/')}/{path} cannot be read ({error.errors()[0]['msg']}). Artifacts are untouched: "
            "run the sweep again, which writes it anew, or delete the file"
        ) from error


def write_cells(location: Location, name: str, cells: Mapping[str, Mapping[str, str]]) -> None:
    """Replace what a sweep says it has measured."""
    kept = {cell: dict(keys) for cell, keys in cells.items()}
    location.replace(_path(name), (json.dumps(kept, indent=2, sort_keys=True) + "\n").encode())


def _path(name: str) -> str:
    return f"{FOLDER}/{checked_name(name, 'name of a sweep')}/{_FILE}"
