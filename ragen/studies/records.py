"""Results of studies in the store, by name.

    <store>/<folder>/<name>/<asked>.json   what was asked for: `grid.json` of an ablation, `sweep.json` of a sweep
    <store>/<folder>/<name>/result.json    the result
    <store>/<folder>/<name>/success.svg    its drawing

Made of stored runs and cells alone, so they can be made again at any time: running the same study again replaces them.
"""

from collections.abc import Mapping
from typing import ClassVar, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from starpo.ragen.config.explanation import near
from starpo.ragen.core.errors import ArtifactDamagedError, StoreError
from starpo.ragen.store.names import checked_name
from starpo.ragen.store.records.runs import StageKeys
from starpo.ragen.store.records.studies import RESULT, SWEEPS, named_cells, write_cells
from starpo.ragen.store.remote.location import Location
from starpo.ragen.studies.ablation.grid import Grid
from starpo.ragen.studies.ablation.summary import AblationResult
from starpo.ragen.studies.sweep.result import SweepResult
from starpo.ragen.studies.sweep.sweep import Sweep

Asked = TypeVar("Asked", bound=BaseModel)
Result = TypeVar("Result", bound=BaseModel)


class StudyRecords(Generic[Asked, Result]):
    """The studies of one kind in one store. What is asked for, and a result, have a `name`.

    Class attributes:
        what: The kind in words, such as "an ablation".
        command: Makes a result.
        folder: In the store.
        asked: File of what was asked for.
        result_type: Model of a result.
    """

    what: ClassVar[str]
    command: ClassVar[str]
    folder: ClassVar[str]
    asked: ClassVar[str]
    result_type: ClassVar[type[BaseModel]]

    def __init__(self, store_url: str) -> None:
        self._location = Location(store_url)

    def begin(self, asked: Asked) -> None:
        """Note what is asked for, before any work: a store that cannot be written says so here.

        Raises:
            StoreError: If the store cannot be written.
        """
        self._write(asked, self.asked)

    def save(self, result: Result, drawing: str) -> None:
        """Write a result and its drawing."""
        self._location.replace(self._path(result.name, "success.svg"), drawing.encode())  # type: ignore[attr-defined]
        self._write(result, RESULT)

    def get(self, name: str) -> Result:
        """The result of this name.

        Raises:
            StoreError: If there is none; the message names those that are near.
            ArtifactDamagedError: If it cannot be read.
        """
        try:
            found = self.result_type.model_validate_json(self._location.read(self._path(name, RESULT)))
        except FileNotFoundError as error:
            names = self.names()
            raise StoreError(
                f"there is no result of {self.what} '{name}' in {self._location.name}{near(name, names)}; "
                f"results: {', '.join(names) or 'none yet'}. `{self.command}` makes one"
            ) from error
        except ValidationError as error:
            raise ArtifactDamagedError(
                f"{self.place(name)}/{RESULT} cannot be read ({error.errors()[0]['msg']}); run it again: what it is "
                "made of is stored, so only the result is made anew"
            ) from error
        return found  # type: ignore[return-value]

    def names(self) -> list[str]:
        """Names of those that have a result."""
        names = self._location.names(self.folder)
        return [name for name in names if RESULT in self._location.names(f"{self.folder}/{name}")]

    def place(self, name: str) -> str:
        """Where the files are, for people."""
        root = str(self._location.local) if self._location.local is not None else self._location.name.rstrip("/")
        return f"{root}/{self.folder}/{name}"

    def _write(self, record: BaseModel, file: str) -> None:
        path = self._path(record.name, file)  # type: ignore[attr-defined]
        self._location.replace(path, (record.model_dump_json(indent=2) + "\n").encode())

    def _path(self, name: str, file: str) -> str:
        return f"{self.folder}/{checked_name(name, f'name of {self.what}')}/{file}"


class Ablations(StudyRecords[Grid, AblationResult]):
    """The ablations of one store."""

    what, command = "an ablation", "ragen ablate GRID"
    folder, asked, result_type = "ablations", "grid.json", AblationResult


class Sweeps(StudyRecords[Sweep, SweepResult]):
    """The sweeps of one store, and the cells that they have measured, which garbage collection keeps."""

    what, command = "a sweep", "ragen eval-sweep RUN"
    folder, asked, result_type = SWEEPS, "sweep.json", SweepResult

    def name_cells(self, name: str, cells: Mapping[str, Mapping[str, str]]) -> None:
        """Say which cells have been measured, in place of what was said before."""
        write_cells(self._location, name, cells)

    def cells(self, name: str) -> StageKeys:
        """Label of a cell -> {kind: key} of what has been measured; empty before the sweep has begun."""
        return named_cells(self._location, name)
