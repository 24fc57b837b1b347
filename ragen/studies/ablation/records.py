"""Results of ablations in the store, by name.

    <store>/ablations/<name>/grid.json       what was asked for
    <store>/ablations/<name>/result.json     `AblationResult`
    <store>/ablations/<name>/success.svg     the plot

Made of stored runs alone, so they can be made again at any time: running the same grid again replaces them.
"""

from pydantic import ValidationError

from starpo.ragen.config.explanation import near
from starpo.ragen.core.errors import ArtifactDamagedError, StoreError
from starpo.ragen.store.names import checked_name
from starpo.ragen.store.remote.location import Location
from starpo.ragen.studies.ablation.grid import Grid
from starpo.ragen.studies.ablation.summary import AblationResult

_FOLDER = "ablations"


class Ablations:
    """The ablations of one store."""

    def __init__(self, store_url: str) -> None:
        self._location = Location(store_url)

    def begin(self, grid: Grid) -> None:
        """Note what is asked for, before any work: a store that cannot be written says so here.

        Raises:
            StoreError: If the store cannot be written.
        """
        self._location.replace(self._path(grid.name, "grid.json"), (grid.model_dump_json(indent=2) + "\n").encode())

    def save(self, result: AblationResult, plot: str) -> None:
        """Write a result and its plot."""
        self._location.replace(self._path(result.name, "success.svg"), plot.encode())
        self._location.replace(
            self._path(result.name, "result.json"), (result.model_dump_json(indent=2) + "\n").encode()
        )

    def get(self, name: str) -> AblationResult:
        """The result of an ablation.

        Raises:
            StoreError: If there is none; the message names those that are near.
        """
        path = self._path(name, "result.json")
        try:
            return AblationResult.model_validate_json(self._location.read(path))
        except FileNotFoundError as error:
            names = self.names()
            raise StoreError(
                f"there is no result of an ablation '{name}' in {self._location.name}{near(name, names)}; "
                f"results: {', '.join(names) or 'none yet'}. `ragen ablate GRID` makes one"
            ) from error
        except ValidationError as error:
            raise ArtifactDamagedError(
                f"{self.place(name)}/result.json cannot be read ({error.errors()[0]['msg']}); run the grid again: its "
                "runs are stored, so only the result is made anew"
            ) from error

    def names(self) -> list[str]:
        """Names of the ablations that have a result."""
        return [
            name for name in self._location.names(_FOLDER) if "result.json" in self._location.names(f"{_FOLDER}/{name}")
        ]

    def place(self, name: str) -> str:
        """Where an ablation's files are, for people."""
        root = str(self._location.local) if self._location.local is not None else self._location.name.rstrip("/")
        return f"{root}/{_FOLDER}/{name}"

    def _path(self, name: str, file: str) -> str:
        return f"{_FOLDER}/{checked_name(name, 'name of an ablation')}/{file}"
