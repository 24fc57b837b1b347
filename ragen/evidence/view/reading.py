"""What live pages ask of a store. It is read again where it changed, and nothing is ever written.

runs/<run> + listing -> version -> RunData, trajectories      all runs -> facts
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock
from typing import Any, TypeVar

import pyarrow as pa

from starpo.ragen.agents.evaluation.comparison import Counts
from starpo.ragen.core.errors import StarPOError, StoreError
from starpo.ragen.evidence.reading import Missing, Place, Reader
from starpo.ragen.evidence.report.data import RunData, TrajectorySource, read_run
from starpo.ragen.evidence.report.embedding import TrajectoryBatch, packed_whole
from starpo.ragen.evidence.report.evaluations import cell_of, read_counts, read_evaluation
from starpo.ragen.evidence.report.images import read_images
from starpo.ragen.evidence.report.trajectories import OneGroup
from starpo.ragen.evidence.run_facts import facts_or_fault, state_facts
from starpo.ragen.store import Store
from starpo.ragen.store.records.run import RunRecord
from starpo.schemas.manifest import Manifest

_MAX_TABLES = 20_000
"""Small datasets that are kept: metrics and decisions of the filter, some kilobytes each."""
_MAX_MANIFESTS = 40_000
_MAX_RUNS = 16
"""Runs whose curves and decisions are kept; more than are compared at once."""
_MAX_BATCH_BYTES = 32 * 2**20
"""Packed trajectories that are kept."""
_MAX_IMAGE_BYTES = 64 * 2**20
"""Images of one rollout, in base64."""
_SMALL = ("metrics", "selection")
_UNFINISHED = ("running", "interrupted", "unknown", "damaged")
_CONTINUED = ("failed", "cancelled")
"""States of ended runs that the same command continues."""

T = TypeVar("T")


@dataclass(frozen=True)
class ViewedRun:
    """A run as its page shows it.

    Attributes:
        version: Differs once a stage was recorded.
        data: What it measured.
        missing: Parts that could not be read.
    """

    version: str
    data: RunData
    missing: tuple[Missing, ...]


class Kept:
    """The newest values by key, up to a total size. Each is made once, even if several threads ask for it."""

    def __init__(self, max_size: int, size_of: Callable[[Any], int] = lambda _: 1) -> None:
        self._max_size, self._size_of, self._size = max_size, size_of, 0
        self._values: OrderedDict[Hashable, Any] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """Return the value; None is not kept."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        value = make()
        with self._lock:
            if value is not None and key not in self._values:
                self._values[key] = value
                self._size += self._size_of(value)
                while self._size > self._max_size and len(self._values) > 1:
                    self._size -= self._size_of(self._values.popitem(last=False)[1])
        return value


class _KeepingReader(Reader):
    """A reader that keeps what never changes: manifests, and datasets that are small."""

    def __init__(self, store: Store, tables: Kept, manifests: Kept) -> None:
        super().__init__(store)
        self._tables, self._manifests = tables, manifests

    def manifest(self, place: Place) -> Manifest | None:
        manifest: Manifest | None = self._manifests.get(
            (place.kind, place.key), lambda: super(_KeepingReader, self).manifest(place)
        )
        return manifest

    def table(self, place: Place | None, columns: Sequence[str] | None = None) -> pa.Table | None:
        if place is None or place.kind not in _SMALL:
            return super().table(place, columns)
        key = place.kind, place.key, tuple(columns or ())
        return self._tables.get(key, lambda: super(_KeepingReader, self).table(place, columns))


class StoreReader:
    """Reads runs for pages; any number of threads may ask.

    Attributes:
        store: The store.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._tables, self._manifests = Kept(_MAX_TABLES), Kept(_MAX_MANIFESTS)
        self._runs, self._sources = Kept(_MAX_RUNS), Kept(_MAX_RUNS)
        self._counts = Kept(_MAX_RUNS)
        self._batches = Kept(_MAX_BATCH_BYTES, len)
        self._facts: dict[str, dict[str, Any]] = {}
        self._versions: dict[str, str] = {}
        self._reading = Lock()

    def runs(self) -> list[dict[str, Any]]:
        """Return the facts of all runs, newest first. Those of an ended run are read once, and when it is continued."""
        names = self.store.runs.names()
        stale = [name for name, is_stale in zip(names, _each(self._is_stale, names), strict=True) if is_stale]
        self._facts |= zip(stale, _each(lambda name: facts_or_fault(self.store, name), stale), strict=True)
        self._facts = {name: self._facts[name] for name in names}
        return sorted(self._facts.values(), key=lambda row: (row["created"] or "", row["run"]), reverse=True)

    def _is_stale(self, run: str) -> bool:
        known = self._facts.get(run, {}).get("state")
        if known not in _CONTINUED:
            return known is None or known in _UNFINISHED
        try:
            state = self.store.runs.state(run)
        except StarPOError:
            return True
        return state is None or state.status != known

    def facts(self, run: str) -> dict[str, Any]:
        """Return the facts of a run as they are now; its records are read again where a stage was recorded.

        Raises:
            StoreError: If there is no such run.
        """
        version = self.version(run)
        facts = self._facts.get(run, {})
        if self._versions.get(run) == version and not facts.get("fault", "unread"):
            facts = self._facts[run] = facts | state_facts(self.store, run)
        else:
            facts = self._facts[run] = facts_or_fault(self.store, run)
            self._versions[run] = version
        return facts

    def version(self, run: str) -> str:
        """Return what differs once a stage of the run was recorded, or its name was taken by another run."""
        return f"{self.store.runs.get(run).created.timestamp():.6f}-{self.store.runs.stamp(run)[:16]}"

    def run(self, run: str) -> ViewedRun:
        """Read a run; what could not be read is named in it.

        Raises:
            StoreError: If there is no such run, or its `run.json` cannot be read.
        """
        version = self.version(run)
        with self._reading:  # a second page of the same run waits for the first
            viewed: ViewedRun = self._runs.get((run, version), lambda: self._read(run, version))
        return viewed

    def last_counts(self, data: RunData) -> Counts | None:
        """Count the successes of a run's last evaluation on the panel of its environment, by initial state.

        Returns:
            None if it has none, or its episodes cannot be read.
        """
        environment = data.run.environment
        evaluated = list(data.series.get(f"evaluation/{environment}/success", {}))
        if not evaluated:
            return None
        keys = tuple(place.key for place in data.places_of(evaluated[-1]) if place.kind == "episodes")
        counts: Counts | None = self._counts.get(
            (data.run.name, keys), lambda: read_counts(self._reader(), data.artifacts, environment, evaluated[-1])
        )
        return counts

    def trajectories(self, run: str, iteration: int, cell: str | None, only: OneGroup) -> bytes:
        """Return the trajectories of a rollout, or of an evaluation, as gzipped JSON `{"texts", "groups", "images"}`.

        Args:
            run: Name of the run.
            iteration: Number of updates done before.
            cell: Name of the evaluation; None for the rollout.
            only: Of a rollout, the group whose members have their turns.

        Raises:
            StoreError: If there is no such run, iteration or evaluation, or it cannot be read.
        """
        viewed = self.run(run)
        places = _places(viewed.data, iteration, cell)
        if not places:
            what = f"evaluation {cell}" if cell else "rollout"
            raise StoreError(f"run {run} has no {what} at iteration {iteration}")
        samples = [place.key for place in viewed.data.places_of(iteration) if place.kind in ("samples", "rewards")]
        key = (run, iteration, cell, only, *(place.key for place in places), *samples)
        packed: bytes = self._batches.get(key, lambda: self._packed(viewed, iteration, places, cell, only))
        return packed

    def _read(self, run: str, version: str) -> ViewedRun:
        record, reader = self.store.runs.get(run), self._reader()
        iterations = reader.iterations(record)
        data = read_run(reader, record, iterations)
        return ViewedRun(version, data, tuple(reader.missing))

    def _source(self, record: RunRecord) -> TrajectorySource:
        """Return what makes trajectories of a run's datasets; its tokenizer is loaded when the first are looked at."""
        known: TrajectorySource | None = self._sources.get((record.name, record.created), lambda: None)
        if known is not None:
            return known
        source = TrajectorySource.of(self.store, record, self._reader().iterations(record))
        if source.transcriber is not None:  # else a later checkpoint may have the tokenizer
            self._sources.get((record.name, record.created), lambda: source)
        return source

    def _packed(
        self, viewed: ViewedRun, iteration: int, places: list[Place], cell: str | None, only: OneGroup
    ) -> bytes:
        reader, of_iteration = self._reader(), viewed.data.places_of(iteration)
        batch: TrajectoryBatch | None
        if cell is None:
            batch = self._source(viewed.data.run).rollout(reader, of_iteration, only)
        else:
            manifest = reader.manifest(places[0])
            batch = read_evaluation(reader, places[0], manifest) if manifest else None
        if batch is None:
            raise StoreError("; ".join(missing.reason for missing in reader.missing) or "it cannot be read")
        groups = list(batch.groups)
        shown = dict.fromkeys(
            name
            for group in groups
            for member in group["members"]
            for turn in member["turns"] or ()
            for name in turn["images"]
        )
        stored = [place for place in of_iteration if place.kind == "images"]
        images = read_images(reader, dict.fromkeys(stored, tuple(shown)), _MAX_IMAGE_BYTES) if shown else {}
        return packed_whole(groups, images)

    def _reader(self) -> Reader:
        return _KeepingReader(self.store, self._tables, self._manifests)


def _places(data: RunData, iteration: int, cell: str | None) -> list[Place]:
    if cell is None:
        return data.stored_rollouts.get(iteration, [])
    return [place for place in data.stored_evaluations.get(iteration, []) if cell_of(place) == cell]


def _each(read: Callable[[str], T], names: Iterable[str]) -> list[T]:
    with ThreadPoolExecutor(8) as readers:
        return list(readers.map(read, names))
