"""Tolerant reading of a run, with a list of what cannot be read, so that reports also work on a damaged store.

runs/<run> -> places of its artifacts -> Reader.table, Reader.manifest -> content, or None and a `Missing`
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from starpo.ragen.core.errors import ArtifactMissingError, StarPOError, one_line
from starpo.ragen.learning.metrics.table import metric_values
from starpo.ragen.store import Store
from starpo.ragen.store.artifacts.datasets import columns_schema
from starpo.ragen.store.records.runs import RunRecord, RunState, StageKeys
from starpo.schemas.manifest import Manifest

_NUM_READERS = 16
_NUM_AHEAD = 64

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, order=True)
class Place:
    """The place of an artifact in a run."""

    iteration: int
    stage: str
    kind: str
    key: str


@dataclass(frozen=True, order=True)
class Missing:
    """A part of a run that could not be read.

    Attributes:
        iteration: Number of updates done before; None if it belongs to the run as a whole.
        what: Stage and artifact, or a file of the run's record.
        reason: Why it cannot be read, and what to do about it.
    """

    iteration: int | None
    what: str
    reason: str


class Reader:
    """Reader of the artifacts of a run; failures are recorded once, and the artifacts left out."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._missing: dict[tuple[str, str], Missing] = {}

    @property
    def missing(self) -> list[Missing]:
        """Parts that could not be read so far, by iteration; those of the whole run come first."""
        return sorted(self._missing.values(), key=lambda m: (-1 if m.iteration is None else m.iteration, m.what))

    def kept(self, key: Hashable, make: Callable[[], R]) -> R:
        """Return what is made of artifacts alone, so that it never changes; a reader that lasts makes it once, by key.

        None, for what cannot be read, is made again.
        """
        return make()

    def iterations(self, run: RunRecord) -> dict[int, StageKeys]:
        """Read the run's iterations as `Runs.iterations`, without those whose record is damaged."""
        try:
            return self.store.runs.iterations(run.name)
        except StarPOError:
            pass
        iterations: dict[int, StageKeys] = {}
        for iteration in range(int(run.config.get("iterations", 0)) + 1):
            try:
                stages = self.store.runs.iteration(run.name, iteration)
            except StarPOError as error:
                self._note(("runs", str(iteration)), Missing(iteration, "its record", one_line(error)))
            else:
                if stages:
                    iterations[iteration] = stages
        return iterations

    def state(self, run: RunRecord) -> RunState | None:
        """Read the state as `Runs.state`; None also if it is damaged."""
        try:
            return self.store.runs.state(run.name)
        except StarPOError as error:
            self._note(("runs", "state"), Missing(None, "state.json", one_line(error)))
            return None

    def manifest(self, place: Place) -> Manifest | None:
        """Read the manifest of an artifact, also of one that was dropped because it can be recomputed."""
        try:
            return self.kept(("manifest", place.kind, place.key), lambda: self.read_manifest(place))
        except StarPOError as error:
            self.note(place, error)
            return None

    def read_manifest(self, place: Place) -> Manifest:
        """Read the manifest of an artifact that is most likely there: `lasting_manifest` costs a listing more."""
        try:
            return self.store.manifest(place.kind, place.key)
        except ArtifactMissingError:
            return self.store.lasting_manifest(place.kind, place.key)

    def manifests(self, artifacts: Sequence[Place]) -> dict[Place, Manifest]:
        """Read the manifests of several artifacts; those that cannot be read are left out."""
        pairs = zip(artifacts, side_by_side(self.store, self.manifest, artifacts), strict=True)
        return {place: manifest for place, manifest in pairs if manifest is not None}

    def table(self, place: Place | None, columns: Sequence[str] | None = None) -> pa.Table | None:
        """Read a dataset; None if it cannot be read, or if `place` is None."""
        manifest = self.manifest(place) if place is not None else None
        if place is None or manifest is None:
            return None
        try:
            return hashed_table(self.store, manifest, columns)
        except StarPOError as error:
            self.note(place, error)
            return None

    def note(self, place: Place, error: StarPOError) -> None:
        """Record that an artifact cannot be read."""
        what = f"{place.kind} of {place.stage} ({place.key})"
        self._note((place.kind, place.key), Missing(place.iteration, what, one_line(error)))

    def _note(self, name: tuple[str, str], missing: Missing) -> None:
        self._missing.setdefault(name, missing)


def places(iterations: Mapping[int, StageKeys]) -> list[Place]:
    """Return the places of all artifacts of a run, in order of iteration and stage."""
    return [
        Place(iteration, stage, kind, key)
        for iteration, stages in iterations.items()
        for stage, keys in stages.items()
        for kind, key in keys.items()
    ]


def hashed_table(store: Store, dataset: Manifest, columns: Sequence[str] | None = None) -> pa.Table:
    """Read a dataset to show it: hashed as by `Store.read_table`, but not validated again.

    The hashes prove that it is what was validated when it was written, and a listing of thousands is four times as
    fast without pandera and polars.

    Raises:
        ArtifactMissingError, ArtifactDamagedError, StoreError: As `Store.read_table`.
    """
    schema, parts = columns_schema(dataset.kind, columns), store.parts_of(dataset, should_verify=True)
    try:
        tables = [pq.ParquetFile(part, pre_buffer=False).read(schema.names, use_threads=False) for part in parts]
        return pa.concat_tables(tables).select(schema.names).cast(schema)
    except (pa.ArrowException, ValueError, KeyError) as error:
        raise store.damaged(dataset.kind, dataset.key, f"its columns are not the dataset's ({error})") from error


def hashed_metrics(store: Store, metrics: Manifest) -> dict[str, float]:
    """Read the metrics of a stage to show them (`hashed_table`)."""
    return metric_values(hashed_table(store, metrics, ["name", "value"]))


def side_by_side(store: Store, read: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Read many small artifacts of a store, and yield the results in order.

    On object storage, where each costs a round trip, several are read at a time, a few ahead of the caller. From a
    folder they are read one by one: threads that wait for one interpreter take nearly twice the processor time.
    """
    if store.is_on_this_machine:
        yield from map(read, items)
        return
    waiting = iter(items)
    with ThreadPoolExecutor(_NUM_READERS) as readers:
        while some := list(islice(waiting, _NUM_AHEAD)):
            yield from readers.map(read, some)
