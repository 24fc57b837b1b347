"""Results of studies in the store, by name.

    <store>/<folder>/<name>/<asked>.json   the specification: `grid.json` of an ablation, `sweep.json` of a sweep
    <store>/<folder>/<name>/result.json    the result
    <store>/<folder>/<name>/success.svg    the drawing of an ablation, and possibly a second one, `league.svg`; that of
                                           a sweep is `leaderboard.svg`

They are functions of stored runs and cells alone and can be recomputed at any time: running the same study again
replaces them.
"""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import ValidationError

from starpo.ragen.config.explanation import near
from starpo.ragen.core.errors import ArtifactDamagedError, StoreError
from starpo.ragen.store.names import checked_name
from starpo.ragen.store.records.runs import StageKeys
from starpo.ragen.store.records.studies import RESULT, SWEEPS, named_cells, write_cells
from starpo.ragen.store.remote.opening import open_location
from starpo.ragen.studies.ablation import AblationResult
from starpo.ragen.studies.figures.leaderboard import draw_leaderboard
from starpo.ragen.studies.figures.league import draw_league
from starpo.ragen.studies.figures.success import draw_ablation
from starpo.ragen.studies.grid import Grid
from starpo.ragen.studies.leaderboard import SweepResult
from starpo.ragen.studies.result import StudyResult, Table
from starpo.ragen.studies.spec import StudySpec
from starpo.ragen.studies.sweep import Sweep
from starpo.ragen.studies.sweep_tables import sweep_method, sweep_tables
from starpo.ragen.studies.tables import (
    ablation_conclusion,
    ablation_method,
    ablation_tables,
)

Request = TypeVar("Request", bound=StudySpec)
Result = TypeVar("Result", bound=StudyResult)


class Studies(Generic[Request, Result]):
    """The studies of one kind in one store.

    Class attributes:
        word: The kind, such as "ablation".
        cells: Name of its units, which succeed or fail, such as "runs".
        command: Command that computes a result.
        folder: Folder in the store.
        spec: Model of the specification.
        result: Model of the result.
        tables: Returns the tables of a result.
        method: Explains the columns of the tables.
        conclude: Whether a paper's finding is reproduced, in a sentence; empty if no finding is specified.
        draw: Returns drawings of a result, by file name.
    """

    word: ClassVar[str]
    cells: ClassVar[str]
    command: ClassVar[str]
    folder: ClassVar[str]
    spec: ClassVar[type[StudySpec]]
    result: ClassVar[type[StudyResult]]
    tables: ClassVar[Callable[[Any], list[Table]]]
    method: ClassVar[Callable[[Any], str]]
    conclude: ClassVar[Callable[[Any], str]] = lambda _: ""
    draw: ClassVar[Callable[[Any], dict[str, str]]] = lambda _: {}

    def __init__(self, store_url: str) -> None:
        self._location = open_location(store_url)

    def begin(self, request: Request) -> None:
        """Record the specification before any work, so that a store that is not writable fails here.

        Raises:
            StoreError: If the store cannot be written.
        """
        self._write(request, self._request_file)

    def has_begun(self, request: Request) -> bool:
        """Whether the specification recorded under its name is this one."""
        try:
            recorded = self._location.read(self._path(request.name, self._request_file))
        except FileNotFoundError:
            return False
        return recorded == _as_bytes(request)

    def save(self, result: Result) -> None:
        """Write a result and its drawings."""
        for file, drawing in type(self).draw(result).items():
            self._location.replace(self._path(result.name, file), drawing.encode())
        self._write(result, RESULT)

    def get(self, name: str) -> Result:
        """Return the result of this name.

        Raises:
            StoreError: If there is none; the message suggests similar names.
            ArtifactDamagedError: If it cannot be read.
        """
        try:
            result = self.result.model_validate_json(self._location.read(self._path(name, RESULT)))
        except FileNotFoundError as error:
            names = self.names()
            raise StoreError(
                f"there is no result of {self._what} '{name}' in {self._location.name}{near(name, names)}; "
                f"results: {', '.join(names) or 'none yet'}. `{self.command}` makes one"
            ) from error
        except ValidationError as error:
            raise ArtifactDamagedError(
                f"{self.place(name)}/{RESULT} cannot be read ({error.errors()[0]['msg']}); run it again: its "
                "inputs are stored, so only the result is recomputed"
            ) from error
        return result  # type: ignore[return-value]

    def version(self, name: str) -> str:
        """Return a digest of the result's record, which a saved result changes; empty if there is none."""
        try:
            return hashlib.sha256(self._location.read(self._path(name, RESULT))).hexdigest()
        except FileNotFoundError:
            return ""

    def files(self, name: str) -> list[str]:
        """List the files of a result, the record first."""
        names = self._location.names(self._path(name, "").rstrip("/"))
        return [RESULT, *(file for file in names if file.endswith(".svg"))]

    def names(self) -> list[str]:
        """List the names of the studies that have a result."""
        names = self._location.names(self.folder)
        return [name for name in names if RESULT in self._location.names(f"{self.folder}/{name}")]

    def place(self, name: str) -> str:
        """Return the location of the files, for display."""
        return f"{self._location.address.rstrip('/')}/{self.folder}/{name}"

    @property
    def _request_file(self) -> str:
        return f"{self.spec.word.split()[-1]}.json"

    @property
    def _what(self) -> str:
        return f"{'an' if self.word[0] in 'aeiou' else 'a'} {self.word}"

    def _write(self, record: StudySpec | StudyResult, file: str) -> None:
        self._location.replace(self._path(record.name, file), _as_bytes(record))

    def _path(self, name: str, file: str) -> str:
        return f"{self.folder}/{checked_name(name, f'name of {self._what}')}/{file}"


def _as_bytes(record: StudySpec | StudyResult) -> bytes:
    return (record.model_dump_json(indent=2) + "\n").encode()


def _draw_ablation(result: AblationResult) -> dict[str, str]:
    drawings = {"success.svg": draw_ablation(result)}
    return drawings | ({"league.svg": draw_league(result)} if result.grid.figure == "league" else {})


def _draw_sweep(result: SweepResult) -> dict[str, str]:
    return {"leaderboard.svg": draw_leaderboard(result).decode()} if result.is_measured else {}


class Ablations(Studies[Grid, AblationResult]):
    """The ablations of one store."""

    word, cells, command, folder = "ablation", "runs", "starpo ablate GRID", "ablations"
    spec, result, tables, method, conclude = (
        Grid, AblationResult, ablation_tables, ablation_method, ablation_conclusion,
    )  # fmt: skip
    draw = _draw_ablation


class Sweeps(Studies[Sweep, SweepResult]):
    """The sweeps of one store, and the cells that they have measured, which garbage collection protects."""

    word, cells, command, folder = "evaluation", "cells", "starpo evaluate", SWEEPS
    spec, result, tables, method, draw = Sweep, SweepResult, sweep_tables, sweep_method, _draw_sweep

    def name_cells(self, name: str, cells: Mapping[str, Mapping[str, str]]) -> None:
        """Record which cells have been measured, replacing the previous record."""
        write_cells(self._location, name, cells)

    def measured(self, name: str) -> StageKeys:
        """Return label of a cell -> {kind: key} of the artifacts measured so far; empty before the sweep starts."""
        return named_cells(self._location, name)
