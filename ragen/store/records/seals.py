"""A run's records as a chain: each contains the digest of the previous one, and the final state that of the last.

    run.json <- iterations/00000.json <- iterations/00001.json <- ... <- head, in state.json

A digest is the SHA-256 of a file's content, so it can be checked with `sha256sum`. Changing, removing or inserting a
record breaks the chain at that place, unless all later records are rewritten as well; `starpo verify` therefore also
compares the records with what the run's settings require. A record without a digest, of a run that was resumed and
killed, can still be read, but nothing is shown about the one before it.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict

from starpo.ragen.store.names import numbers_of
from starpo.ragen.store.remote.location import Location

DIGITS = 5

StageKeys = dict[str, dict[str, str]]
"""Stage -> {kind: key}."""


class IterationRecord(BaseModel):
    """The artifacts of an iteration, and the digest of the previous record."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)

    previous: str = ""
    """Digest of the previous record; empty: this record seals nothing."""
    stages: StageKeys = {}
    """Stage -> {kind: key}."""


@dataclass(frozen=True)
class Seals:
    """Result of checking the chain of a run.

    Attributes:
        broken: Record -> what does not match. It, or an adjacent record, is not what was written.
        absent: Record -> why it cannot be checked.
    """

    broken: dict[str, str] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)


def digest(data: bytes) -> str:
    """Return the digest of a record: 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def record_path(iteration: int) -> str:
    """Return the path of an iteration's record, relative to the run's folder."""
    return f"iterations/{iteration:0{DIGITS}d}.json"


def recorded_iterations(location: Location, run: str) -> list[int]:
    """Return the iterations of which a run has a record, in no order."""
    return numbers_of(location.names(f"runs/{run}/iterations"), DIGITS)


def check_seals(run: bytes, records: Mapping[int, tuple[bytes, IterationRecord]], head: str | None) -> Seals:
    """Compare every record with the digest in the next one.

    Args:
        run: Content of `run.json`.
        records: Iteration -> content of its record, and the parsed record; in ascending order.
        head: Digest in the final state; empty: it contains none. None: the run has not ended.
    """
    seals = Seals()
    before, actual = "run.json", digest(run)
    for iteration, (data, record) in records.items():
        path = record_path(iteration)
        if not record.previous:
            seals.absent[before] = f"{path}, the record after it, names no digest of it"
        elif record.previous != actual:
            seals.broken[before] = (
                f"its digest is {actual}, and {path}, the record after it, was written after {record.previous}: one of "
                "the two was changed, or a record between them was removed or added"
            )
        before, actual = path, digest(data)
    if head is None:
        seals.absent[before] = "the run has not ended, so nothing confirms that this is its last record"
    elif not head:
        seals.absent[before] = "the end of the run names no digest of its last record"
    elif head != actual:
        seals.broken[before] = (
            f"its digest is {actual}, and the run ended (state.json) with {head}: it was changed, or records "
            "after it were removed or added"
        )
    return seals


class RecordChain:
    """The records of one run, for the single process that writes them. Not thread-safe."""

    def __init__(self, location: Location, run: str) -> None:
        self._location = location
        self._folder = f"runs/{run}"
        self._iterations = set(recorded_iterations(location, run))
        self._maybe_sealed = set(self._iterations)
        self._newest: tuple[int, bytes, str] | None = None

    def note(self, iteration: int, stage: str, keys: Mapping[str, str]) -> None:
        """Record the artifacts of a stage. Recording the same again writes nothing."""
        data, previous = self._at(iteration)
        record = IterationRecord.model_validate_json(data) if data else IterationRecord()
        noted = IterationRecord(previous=previous, stages={**record.stages, stage: dict(keys)})
        if noted != record:
            self._open_after(iteration)
            data = self._write(iteration, noted)
        self._newest = iteration, data, previous

    def head(self) -> str:
        """Return the digest of the last record."""
        return digest(self._read(max(self._iterations, default=None)))

    def _at(self, iteration: int) -> tuple[bytes, str]:
        """Return the content of an iteration's record, empty if there is none, and the digest of the previous
        record."""
        if self._newest is not None and self._newest[0] == iteration:
            return self._newest[1:]
        before = max((number for number in self._iterations if number < iteration), default=None)
        is_newest = self._newest is not None and self._newest[0] == before
        previous = digest(self._newest[1] if is_newest and self._newest else self._read(before))
        return self._read(iteration), previous

    def _open_after(self, iteration: int) -> None:
        """Unseal later records, written before the run was resumed, which no longer follow this one.

        The last is unsealed first, so that a kill in between leaves no record with a digest that does not match.
        """
        for later in sorted((number for number in self._maybe_sealed if number > iteration), reverse=True):
            record = IterationRecord.model_validate_json(self._read(later))
            if record.previous:
                self._write(later, record.model_copy(update={"previous": ""}))
            self._maybe_sealed.discard(later)

    def _read(self, iteration: int | None) -> bytes:
        """Read an iteration's record. None: `run.json`. Returns empty bytes if there is none."""
        try:
            return self._location.read(f"{self._folder}/{'run.json' if iteration is None else record_path(iteration)}")
        except FileNotFoundError:
            return b""

    def _write(self, iteration: int, record: IterationRecord) -> bytes:
        data = as_bytes(record)
        self._location.replace(f"{self._folder}/{record_path(iteration)}", data)
        self._iterations.add(iteration)
        self._maybe_sealed.add(iteration)
        return data


def as_bytes(record: BaseModel) -> bytes:
    """Serialise a record as it is stored."""
    return (json.dumps(record.model_dump(mode="json"), indent=2, sort_keys=True, allow_nan=False) + "\n").encode()
