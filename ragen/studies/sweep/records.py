"""Results of sweeps in the store, by name.

    <store>/sweeps/<name>/sweep.json     what was asked for
    <store>/sweeps/<name>/cells.json     cell -> {kind: key}: what it has measured; garbage collection keeps it
    <store>/sweeps/<name>/result.json    `SweepResult`
    <store>/sweeps/<name>/success.svg    the heat map

Made of stored cells alone, so they can be made again at any time: running the same sweep again replaces them.
"""

from collections.abc import Mapping

from pydantic import ValidationError

from starpo.ragen.config.explanation import near
from starpo.ragen.core.errors import ArtifactDamagedError, StoreError
from starpo.ragen.store.names import checked_name
from starpo.ragen.store.records.runs import StageKeys
from starpo.ragen.store.records.sweeps import FOLDER, named_cells, write_cells
from starpo.ragen.store.remote.location import Location
from starpo.ragen.studies.sweep.result import SweepResult
from starpo.ragen.studies.sweep.sweep import Sweep


class Sweeps:
    """The sweeps of one store."""

    def __init__(self, store_url: str) -> None:
        self._location = Location(store_url)

    def begin(self, sweep: Sweep) -> None:
        """Note what is asked for, before any work: a store that cannot be written says so here.

        Raises:
            StoreError: If the store cannot be written.
        """
        self._location.replace(self._path(sweep.name, "sweep.json"), (sweep.model_dump_json(indent=2) + "\n").encode())

    def name_cells(self, name: str, cells: Mapping[str, Mapping[str, str]]) -> None:
        """Say which cells have been measured, in place of what was said before."""
        write_cells(self._location, name, cells)

    def cells(self, name: str) -> StageKeys:
        """Label of a cell -> {kind: key} of what has been measured; empty before the sweep has begun."""
        return named_cells(self._location, name)

    def save(self, result: SweepResult, heat_map: str) -> None:
        """Write a result and its heat map."""
        self._location.replace(self._path(result.name, "success.svg"), heat_map.encode())
        self._location.replace(
            self._path(result.name, "result.json"), (result.model_dump_json(indent=2) + "\n").encode()
        )

    def get(self, name: str) -> SweepResult:
        """The result of a sweep.

        Raises:
            StoreError: If there is none; the message names those that are near.
        """
        path = self._path(name, "result.json")
        try:
            return SweepResult.model_validate_json(self._location.read(path))
        except FileNotFoundError as error:
            names = self.names()
            raise StoreError(
                f"there is no result of a sweep '{name}' in {self._location.name}{near(name, names)}; "
                f"results: {', '.join(names) or 'none yet'}. `ragen eval-sweep RUN` makes one"
            ) from error
        except ValidationError as error:
            raise ArtifactDamagedError(
                f"{self.place(name)}/result.json cannot be read ({error.errors()[0]['msg']}); run the sweep again: its "
                "cells are stored, so only the result is made anew"
            ) from error

    def names(self) -> list[str]:
        """Names of the sweeps that have a result."""
        return [
            name for name in self._location.names(FOLDER) if "result.json" in self._location.names(f"{FOLDER}/{name}")
        ]

    def place(self, name: str) -> str:
        """Where a sweep's files are, for people."""
        root = str(self._location.local) if self._location.local is not None else self._location.name.rstrip("/")
        return f"{root}/{FOLDER}/{name}"

    def _path(self, name: str, file: str) -> str:
        return f"{FOLDER}/{checked_name(name, 'name of a sweep')}/{file}"
