"""Traces that could not be imported: counted by reason, reported, and kept in the store's quarantine.

place, reason, beginning -> SetAside -> <store>/quarantine/traces-<key>-<digest>/
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from starpo.ragen.core.errors import DataError
from starpo.ragen.core.visible import quoted
from starpo.ragen.store.artifacts.quarantine import quarantine
from starpo.ragen.store.remote.location import Location
from starpo.schemas.violation import FAILURE_CASES, ContractViolation

_SCHEMA = pa.schema({"place": pa.string(), "reason": pa.string(), "beginning": pa.string()})
_ROWS_AT_ONCE = 1_000
_SHOWN_REASONS = 5
_VARYING = re.compile(r"'[^']*'|\"[^\"]*\"|\d+(\.\d+)?")


@dataclass
class _Reason:
    count: int
    example: str


@dataclass
class SetAside:
    """Traces excluded from an import.

    Attributes:
        folder: Local folder to write into.
        num_traces: Number of traces set aside.
    """

    folder: Path
    num_traces: int = 0
    _reasons: dict[str, _Reason] = field(default_factory=dict)
    _waiting: list[dict[str, str]] = field(default_factory=list)
    _writer: pq.ParquetWriter | None = None

    @property
    def file(self) -> Path:
        """File that holds the traces until they are moved to quarantine."""
        return self.folder / "set-aside.parquet"

    def add(self, place: str, reason: str, beginning: str) -> None:
        """Set a trace aside, with its place, the reason, and its beginning."""
        self.num_traces += 1
        kind = _VARYING.sub("...", reason)
        known = self._reasons.setdefault(kind, _Reason(0, f"{quoted(place)} {reason}"))
        known.count += 1
        row = {"place": place, "reason": reason, "beginning": beginning}
        self._waiting.append({name: _text(value) for name, value in row.items()})
        if len(self._waiting) >= _ROWS_AT_ONCE:
            self._flush()

    def lines(self) -> Iterator[str]:
        """Yield the reasons, most frequent first, each with its first case."""
        ordered = sorted(self._reasons.values(), key=lambda reason: -reason.count)
        for reason in ordered[:_SHOWN_REASONS]:
            yield f"{reason.count} set aside, such as {_text(reason.example)}"
        if len(ordered) > _SHOWN_REASONS:
            yield f"and {len(ordered) - _SHOWN_REASONS} more reasons"

    def keep(self, location: Location, key: str) -> DataError:
        """Move the traces to quarantine; return the error to raise if nothing is left to import."""
        self._flush()
        if self._writer is not None:
            self._writer.close()
        message = "\n".join([f"{self.num_traces} traces could not be imported:", *self.lines()])
        first = pq.ParquetFile(self.file).iter_batches(_ROWS_AT_ONCE)
        cases = [
            {"dataset": "traces", "column": "", "rule": row["reason"], "row": None, "id": row["place"], "found": ""}
            for row in next(first).to_pylist()
        ]
        violation = ContractViolation("traces", message, pa.Table.from_pylist(cases, schema=FAILURE_CASES))
        return quarantine(location, [self.file], key, violation)

    def _flush(self) -> None:
        if self._waiting:
            if self._writer is None:
                self._writer = pq.ParquetWriter(self.file, _SCHEMA, compression="zstd")
            self._writer.write_table(pa.Table.from_pylist(self._waiting, schema=_SCHEMA))
            self._waiting = []


def _text(value: str) -> str:
    """Replace characters that cannot be encoded as UTF-8."""
    return value.encode("utf-8", "replace").decode()
