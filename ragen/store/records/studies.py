"""Results over runs, those of sweeps and ablations, as far as the store needs to know them.

<store>/sweeps/<name>/result.json, <store>/ablations/<name>/result.json -> Study -> copied with the last of its runs
<store>/sweeps/<name>/cells.json    cell -> {kind: key}: measured by the sweep, and kept like artifacts of runs
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter, ValidationError

from starpo.ragen.core.errors import ArtifactDamagedError, StoreError
from starpo.ragen.store.names import checked_name
from starpo.ragen.store.records.runs import StageKeys
from starpo.ragen.store.remote.location import Location

SWEEPS = "sweeps"
"""Folder of sweeps."""
_ASKED = {"ablations": "grid.json", SWEEPS: "sweep.json"}
"""Folder -> the file that specifies the study."""
FOLDERS = tuple(_ASKED)
RESULT = "result.json"
_CELLS_FILE = "cells.json"
_CELLS = TypeAdapter(StageKeys)


@dataclass(frozen=True)
class Study:
    """A sweep or an ablation with a result.

    Attributes:
        place: Its folder in the store, such as `sweeps/mine`.
        runs: The runs that it names.
        cells: Cell -> {kind: key} of its own measurements; empty for an ablation.
    """

    place: str
    runs: tuple[str, ...]
    cells: StageKeys = field(default_factory=dict)


def studies_of(location: Location, run: str) -> tuple[list[Study], dict[str, str]]:
    """Return the studies that name a run, and those for which this cannot be determined: place -> reason."""
    found: list[Study] = []
    unreadable: dict[str, str] = {}
    for folder in _ASKED:
        for place in (f"{folder}/{name}" for name in location.names(folder)):
            try:
                runs = _named_runs(json.loads(location.read(f"{place}/{RESULT}")))
                if run in runs:
                    cells = named_cells(location, place.partition("/")[2]) if folder == SWEEPS else {}
                    found.append(Study(place, runs, cells))
            except FileNotFoundError:  # no result yet
                continue
            except (ValueError, KeyError, TypeError, AttributeError, StoreError):
                unreadable[place] = "its record cannot be read; run it again, which rewrites it"
    return found, unreadable


def obstacle(study: Study, source: Location, target: Location, runs: Collection[str]) -> str | None:
    """Return why a study cannot be copied to another store; None if it can.

    Args:
        study: The study.
        source: The store it is in.
        target: The other store.
        runs: Runs that are in the target, or are about to be.
    """
    if absent := [run for run in study.runs if run not in runs]:
        return f"it names runs that are not there: {', '.join(absent)}; it is copied along with the last of them"
    asked = f"{study.place}/{_ASKED[study.place.partition('/')[0]]}"
    if asked.rpartition("/")[2] in target.names(study.place) and target.read(asked) != source.read(asked):
        return "a different one of that name is there"
    return None


def copy_study(study: Study, source: Location, target: Location) -> None:
    """Copy a study's files, the result last; the artifacts that it names must have been copied before."""
    for name in sorted(source.names(study.place), key=lambda name: (name == RESULT, name)):
        target.replace(f"{study.place}/{name}", source.read(f"{study.place}/{name}"))


def _named_runs(result: dict[str, Any]) -> tuple[str, ...]:
    named = result["runs"] if "runs" in result else [run for cell in result["cells"] for run in cell["runs"].values()]
    return tuple(dict.fromkeys(map(str, named)))


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
