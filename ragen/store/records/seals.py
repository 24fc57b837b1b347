"""A run's records as a chain: each names the digest of the one before it, and the end of the run names the last.

    run.json <- iterations/00000.json <- iterations/00001.json <- ... <- head, in state.json

A digest is the SHA-256 of a file's bytes, so `sha256sum` shows it too. Whoever changes a record, takes one out or puts
one in breaks the chain at that place, unless everything after it is written anew as well: `ragen verify` therefore also
compares what the records say with what the run's settings ask for. Records from before 2026-11-23 name no digest; they
can be read all the same, and nothing is shown about them.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter, model_validator

from starpo.ragen.store.remote.location import Location

StageKeys = dict[str, dict[str, str]]
"""Stage -> {kind: key}."""

_STAGE_KEYS = TypeAdapter(StageKeys)


class IterationRecord(BaseModel):
    """What an iteration made, and what was written before that."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)

    previous: str = ""
    """Digest of the record before this one; empty: this one seals nothing."""
    stages: StageKeys = {}
    """Stage -> {kind: key}."""

    @model_validator(mode="before")
    @classmethod
    def _of_version_0_1(cls, value: Any) -> Any:
        """There a record was its stages alone."""
        is_older = isinstance(value, dict) and not isinstance(value.get("previous"), str)
        return {"stages": _STAGE_KEYS.validate_python(value, strict=True)} if is_older and value else value


@dataclass(frozen=True)
class Seals:
    """What the chain of a run shows.

    Attributes:
        broken: Record -> what does not fit. It, or a record beside it, is not what was written.
        absent: Record -> why nothing tells whether it is what was written.
    """

    broken: dict[str, str] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)


def digest(data: bytes) -> str:
    """Digest of a record: 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def record_path(iteration: int) -> str:
    """Where an iteration's record is, relative to the run's folder."""
    return f"iterations/{iteration:05d}.json"


def check_seals(run: bytes, records: Mapping[int, tuple[bytes, IterationRecord]], head: str | None) -> Seals:
    """Compare every record with the digest that the next one names.

    Args:
        run: The bytes of `run.json`.
        records: Iteration -> the bytes of its record, and what they say; in ascending order.
        head: What the end of the run names; empty: no digest. None: the run has not ended.
    """
    seals = Seals()
    before, found = "run.json", digest(run)
    for iteration, (data, record) in records.items():
        path = record_path(iteration)
        if not record.previous:
            seals.absent[before] = (
                f"{path}, the record after it, names no digest of it, as in stores from before 2026-11-23"
            )
        elif record.previous != found:
            seals.broken[before] = (
                f"its digest is {found}, and {path}, the record after it, was written after {record.previous}: one of "
                "the two was changed, or one between them was taken out or put in"
            )
        before, found = path, digest(data)
    if head is None:
        seals.absent[before] = "the run has not ended, so nothing says that this is its last record"
    elif not head:
        seals.absent[before] = (
            "the end of the run names no digest of its last record, as in stores from before 2026-11-23"
        )
    elif head != found:
        seals.broken[before] = (
            f"its digest is {found}, and the run ended (state.json) with {head}: it was changed, or others were taken "
            "out or put in after it"
        )
    return seals


class RecordChain:
    """The records of one run, for the one process that writes them. Not to be used by two threads at once."""

    def __init__(self, location: Location, run: str) -> None:
        self._location = location
        self._folder = f"runs/{run}"
        names = (name.removesuffix(".json") for name in location.names(f"{self._folder}/iterations"))
        self._iterations = {int(name) for name in names if name.isdigit()}
        self._maybe_sealed = set(self._iterations)
        self._newest: tuple[int, bytes, str] | None = None

    def note(self, iteration: int, stage: str, keys: Mapping[str, str]) -> None:
        """Note what a stage made. Noting the same again writes nothing."""
        data, previous = self._at(iteration)
        record = IterationRecord.model_validate_json(data) if data else IterationRecord()
        noted = IterationRecord(previous=previous, stages={**record.stages, stage: dict(keys)})
        if noted != record:
            self._open_after(iteration)
            data = self._write(iteration, noted)
        self._newest = iteration, data, previous

    def head(self) -> str:
        """Digest of the last record."""
        return digest(self._read(max(self._iterations, default=None)))

    def _at(self, iteration: int) -> tuple[bytes, str]:
        """The iteration's record, empty where there is none, and the digest of the one before it."""
        if self._newest is not None and self._newest[0] == iteration:
            return self._newest[1:]
        before = max((number for number in self._iterations if number < iteration), default=None)
        is_newest = self._newest is not None and self._newest[0] == before
        previous = digest(self._newest[1] if is_newest and self._newest else self._read(before))
        return self._read(iteration), previous

    def _open_after(self, iteration: int) -> None:
        """Later records, of the time before the run was taken up again, follow on this one no more.

        The last goes first, so that a kill in between leaves no record that names another digest than there is.
        """
        for later in sorted((number for number in self._maybe_sealed if number > iteration), reverse=True):
            record = IterationRecord.model_validate_json(self._read(later))
            if record.previous:
                self._write(later, record.model_copy(update={"previous": ""}))
            self._maybe_sealed.discard(later)

    def _read(self, iteration: int | None) -> bytes:
        """An iteration's record. None: `run.json`; nothing where there is none."""
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
    """A record as it is stored."""
    return (json.dumps(record.model_dump(mode="json"), indent=2, sort_keys=True, allow_nan=False) + "\n").encode()
