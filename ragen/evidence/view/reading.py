"""What live pages ask of a store about a run. It is read again where it changed, and nothing is ever written.

runs/<run> + listing -> version -> facts, RunData, trajectories
"""

import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from threading import Lock
from typing import Any, TypeVar

from starpo.ragen.agents.evaluation.comparison import Counts
from starpo.ragen.core.errors import StarPOError, StoreError
from starpo.ragen.evidence.reading import Missing, Place, Reader, side_by_side
from starpo.ragen.evidence.report.credit import credit_places
from starpo.ragen.evidence.report.data import RunData, read_run
from starpo.ragen.evidence.report.embedding import TrajectoryBatch, packed_whole
from starpo.ragen.evidence.report.evaluations import cell_of, read_counts, read_evaluation
from starpo.ragen.evidence.report.groups import OneGroup
from starpo.ragen.evidence.report.images import read_images
from starpo.ragen.evidence.report.rollouts import read_rollout
from starpo.ragen.evidence.report.trajectory import TrajectorySource
from starpo.ragen.evidence.run_facts import facts_or_fault, state_facts
from starpo.ragen.store import Store
from starpo.ragen.store.records.run import RunRecord
from starpo.ragen.store.records.seals import StageKeys
from starpo.schemas.manifest import Manifest

_MAX_PART_BYTES = 96 * 2**20
"""What is kept of artifacts: manifests, points of curves, decisions, counts; estimated."""
_MAX_COMMON = 1_000
"""Settings of stages and facts about machines that manifests share."""
_MAX_ARTIFACTS = 20_000
"""Artifacts of all runs whose curves and decisions are kept: ten runs of 300 iterations."""
_MAX_RUNS = 64
"""Runs whose facts, and tokenizer, are kept."""
_MAX_BATCH_BYTES = 32 * 2**20
"""Packed trajectories that are kept."""
_MAX_IMAGE_BYTES = 64 * 2**20
"""Images of one rollout, in base64."""

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
    """The values used last, by key, up to a total size; of each key only the newest version."""

    def __init__(self, max_size: int, size_of: Callable[[Any], int] = lambda _: 1) -> None:
        self._max_size, self._size_of, self._size = max_size, size_of, 0
        self._values: OrderedDict[Hashable, tuple[Hashable, Any]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable, make: Callable[[], Any], version: Hashable = None) -> Any:
        """Return the value of this version, made unless it is kept; None is not kept."""
        with self._lock:
            if key in self._values and self._values[key][0] == version:
                self._values.move_to_end(key)
                return self._values[key][1]
        value = make()
        with self._lock:
            if key in self._values:
                self._size -= self._size_of(self._values.pop(key)[1])
            if value is not None:
                self._values[key] = version, value
                self._size += self._size_of(value)
            while self._size > self._max_size and len(self._values) > 1:
                self._size -= self._size_of(self._values.popitem(last=False)[1][1])
        return value

    def drop(self, key: Hashable) -> None:
        """Remove the value of a key."""
        with self._lock:
            if key in self._values:
                self._size -= self._size_of(self._values.pop(key)[1])


class _LastingReader(Reader):
    """A reader that makes what never changes once, for all readers of its kind."""

    def __init__(self, store: Store, parts: Kept, common: Kept) -> None:
        super().__init__(store)
        self._parts, self._common = parts, common

    def kept(self, key: Hashable, make: Callable[[], T]) -> T:
        part: T = self._parts.get(key, lambda: self._compact(make()))
        return part

    def read_manifest(self, place: Place) -> Manifest:
        """Take this machine's copy of a remote one; a server that is started again would fetch hundreds a run."""
        return self.store.copied_manifest(place.kind, place.key)

    def note(self, place: Place, error: StarPOError) -> None:
        """Record it, and read the manifest again next time: the artifact may have been made again."""
        self._parts.drop(("manifest", place.kind, place.key))
        super().note(place, error)

    def _compact(self, part: Any) -> Any:
        """Share what manifests of many stages have in common, half of their memory."""
        if not isinstance(part, Manifest):
            return part

        def shared(value: Any) -> Any:
            return self._common.get(json.dumps(value), lambda: value) if isinstance(value, dict) else value

        facts = {name: shared(value) for name, value in part.provenance.items()}
        return part.model_copy(update={"settings": shared(part.settings), "provenance": facts})


class StoreReader:
    """Reads runs for pages; any number of threads may ask.

    Attributes:
        store: The store.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self._parts, self._common = Kept(_MAX_PART_BYTES, _size_of), Kept(_MAX_COMMON)
        self._runs = Kept(_MAX_ARTIFACTS, lambda viewed: len(viewed.data.artifacts))
        self._facts, self._records = Kept(_MAX_RUNS), Kept(_MAX_RUNS)
        self._sources = Kept(_MAX_RUNS)
        self._batches = Kept(_MAX_BATCH_BYTES, len)
        self._reading = Lock()

    def version(self, run: str) -> str:
        """Return what differs once a stage of the run was recorded, or its name was taken by another run.

        Raises:
            StoreError: If there is no such run.
        """
        created, stamps = self.store.runs.get(run).created, self.store.runs.stamps(run)
        return f"{created.timestamp():.6f}-{hashlib.sha256(repr(stamps).encode()).hexdigest()[:16]}"

    def facts(self, run: str, version: str) -> dict[str, Any]:
        """Return the facts of a run as they are now; its records are read again where a stage was recorded."""

        def read() -> dict[str, Any] | None:
            facts = facts_or_fault(self.store, run, lambda: self.recorded(run, version))
            return None if facts["fault"] else facts

        facts: dict[str, Any] | None = self._facts.get(run, read, version)
        return facts_or_fault(self.store, run) if facts is None else facts | state_facts(self.store, run)

    def recorded(self, run: str, version: str) -> dict[int, StageKeys]:
        """Return the stages of a run by iteration; a record is read again where it was replaced.

        Raises:
            StoreError: If a record cannot be read.
        """
        runs, begin = self.store.runs, version.partition("-")[0]

        def read_all() -> dict[int, StageKeys]:
            stamps = runs.stamps(run)

            def read(iteration: int) -> StageKeys:
                key, at = ("record", run, iteration), (begin, stamps[iteration])
                stages: StageKeys = self._parts.get(key, lambda: runs.iteration(run, iteration), at)
                return stages

            return dict(zip(stamps, side_by_side(self.store, read, stamps), strict=True))

        recorded: dict[int, StageKeys] = self._records.get(run, read_all, version)
        return recorded

    def iterations(self, record: RunRecord, version: str, reader: Reader | None = None) -> dict[int, StageKeys]:
        """Return the same without those whose record is damaged, which the reader notes."""
        try:
            return self.recorded(record.name, version)
        except StarPOError:
            return (reader or Reader(self.store)).iterations(record)

    def run(self, run: str) -> ViewedRun:
        """Read a run; what could not be read is named in it.

        Raises:
            StoreError: If there is no such run, or its `run.json` cannot be read.
        """
        version = self.version(run)
        with self._reading:  # a second page of the same run waits for the first
            viewed: ViewedRun = self._runs.get(run, lambda: self._read(run, version), version)
        return viewed

    def last_counts(self, data: RunData) -> Counts | None:
        """Count the successes of a run's last evaluation on the panel of its environment, by initial state.

        Returns:
            None if it has none, or its episodes cannot be read.
        """
        environment = data.run.environment
        evaluated = list(data.series.get(f"evaluation/{environment}/success", {}))
        return read_counts(self._reader(), data.artifacts, environment, evaluated[-1]) if evaluated else None

    def trajectories(self, run: str, iteration: int, cell: str | None, only: OneGroup) -> bytes:
        """Return the trajectories of a rollout, or of an evaluation, as gzipped JSON `{"texts", "groups", "images"}`.

        Args:
            run: Name of the run.
            iteration: Number of updates done before.
            cell: Name of the evaluation; None for the rollout.
            only: The group whose members have their turns; of an evaluation, the samples of a prompt.

        Raises:
            StoreError: If there is no such run, iteration or evaluation, or it cannot be read.
        """
        viewed = self.run(run)
        places = _places(viewed.data, iteration, cell)
        if not places:
            what = f"evaluation {cell}" if cell else "rollout"
            raise StoreError(f"run {run} has no {what} at iteration {iteration}")
        of_iteration = viewed.data.places_of(iteration)
        samples = [place.key for place in of_iteration if place.kind in ("samples", "rewards")]
        credit = credit_places(self._reader(), of_iteration) if cell is None else []
        key = (run, iteration, cell, only, *(place.key for place in (*places, *credit)), *samples)
        packed: bytes = self._batches.get(key, lambda: self._packed(viewed, iteration, places, cell, only, credit))
        return packed

    def _read(self, run: str, version: str) -> ViewedRun:
        record, reader = self.store.runs.get(run), self._reader()
        data = read_run(reader, record, self.iterations(record, version, reader))
        return ViewedRun(version, data, tuple(reader.missing))

    def _source(self, record: RunRecord, version: str) -> TrajectorySource:
        """Return what makes trajectories of a run's datasets; its tokenizer is loaded when the first are looked at."""
        known: TrajectorySource | None = self._sources.get((record.name, record.created), lambda: None)
        if known is not None:
            return known
        source = TrajectorySource.of(self.store, record, self.iterations(record, version))
        if source.transcriber is not None:  # else a later checkpoint may have the tokenizer
            self._sources.get((record.name, record.created), lambda: source)
        return source

    def _packed(
        self,
        viewed: ViewedRun,
        iteration: int,
        places: list[Place],
        cell: str | None,
        only: OneGroup,
        credit: list[Place],
    ) -> bytes:
        reader, of_iteration = self._reader(), viewed.data.places_of(iteration)
        source = self._source(viewed.data.run, viewed.version)
        batch: TrajectoryBatch | None = None
        if cell is None:
            batch = read_rollout(reader, [*of_iteration, *credit], source, only)
        elif manifest := reader.manifest(places[0]):
            batch = read_evaluation(reader, places[0], manifest, of_iteration, source, only)
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
        return _LastingReader(self.store, self._parts, self._common)


def _places(data: RunData, iteration: int, cell: str | None) -> list[Place]:
    if cell is None:
        return data.stored_rollouts.get(iteration, [])
    return [place for place in data.stored_evaluations.get(iteration, []) if cell_of(place) == cell]


def _size_of(part: Any) -> int:
    """Estimate the memory of a part of a run, in bytes."""
    if isinstance(part, Manifest):
        return 6_000
    return 100 + 200 * len(part) if isinstance(part, list | dict) else 100
