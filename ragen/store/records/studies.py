"""Sweeps and ablations, as far as the store needs to know them.

<store>/sweeps/<name>/cells.json    cell -> {kind: key}: measured by the sweep, and kept like artifacts of runs
"""

import json
from collections.abc import Mapping

from pydantic import TypeAdapter, ValidationError

from starpo.ragen.core.errors import ArtifactDamagedError
from starpo.ragen.store.names import checked_name
from starpo.ragen.store.records.runs import StageKeys
from starpo.ragen.store.remote.location import Location

SWEEPS = "sweeps"
"""Folder of sweeps."""
FOLDERS = ("ablations", SWEEPS)
RESULT = "result.json"
_CELLS_FILE = "cells.json"
_CELLS = TypeAdapter(StageKeys)


def sweep_names(location: Location) -> list[str]:
    """Return the names of the sweeps that have begun."""
    return [name for name in location.names(SWEEPS) if _CELLS_FILE in location.names(f"{SWEEPS}/{name}")]


def named_cells(location: Location, name: str) -> StageKeys:
    """Return cell -> {kind: key} of a sweep's measurements; empty if there is no such sweep.

    Raises:
        ArtifactDamagedError: If the record cannot be read.
    """
    path = _cells_path(name)
    try:
        return _CELLS.validate_json(location.read(path), strict=True)
    except FileNotFoundError:
        return {}
    except ValidationError as error:
        raise ArtifactDamagedError(
            f"{location.name.rstrip('/')}/{path} cannot be read ({error.errors()[0]['msg']}). Artifacts are untouched: "
            "run the sweep again, which rewrites it, or delete the file"
        ) from error


def write_cells(location: Location, name: str, cells: Mapping[str, Mapping[str, str]]) -> None:
    """Replace the record of a sweep's measurements."""
    kept = {cell: dict(keys) for cell, keys in cells.items()}
    location.replace(_cells_path(name), (json.dumps(kept, indent=2, sort_keys=True) + "\n").encode())


def _cells_path(name: str) -> str:
    return f"{SWEEPS}/{checked_name(name, 'name of a sweep')}/{_CELLS_FILE}"
