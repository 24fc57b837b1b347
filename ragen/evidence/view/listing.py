"""All runs of a store at a glance. A request reads for half a second at most, and a page asks again until all are read.

names of runs -> RunList, rows of JSON with the number of their last change -> what changed since a page asked
"""

import json
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from math import inf
from threading import Lock
from time import monotonic, time_ns
from typing import Any

from starpo.ragen.core.errors import StarPOError
from starpo.ragen.evidence.report.document import rounded
from starpo.ragen.evidence.run_facts import facts_or_fault
from starpo.ragen.evidence.view.reading import StoreReader

NUM_AT_ONCE = 200
"""Rows of the page as it is served; as many as its script draws."""
_READING_S = 0.5
_CHUNK = 32
"""Runs that are read before the clock is looked at."""
_NUM_READERS = 16
_FOLLOWED = ("running", "damaged")
"""Runs that are read at every request; the others where their record was written."""
_RECENT = timedelta(seconds=2)
_NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True)
class _Row:
    changed: int
    state: str
    created: str
    touched: Any
    text: bytes


class RunList:
    """The facts of all runs; any number of threads may ask.

    Args:
        reader: Reads the runs of the store.
    """

    def __init__(self, reader: StoreReader) -> None:
        self._reader, self._runs = reader, reader.store.runs
        self._rows: dict[str, _Row] = {}
        self._unread: list[str] = []
        self._gone: dict[str, int] = {}
        self._begin = time_ns() // 1000  # later servers begin with higher numbers
        self._numbers = count(self._begin + 1)
        self._lock = Lock()

    def since(self, number: int) -> bytes:
        """Return what has changed since the answer of this number, as JSON.

        Returns:
            `number`, of this answer; `is_whole`, whether these are all rows; `rows`, facts of runs in any order;
            `gone`, names of runs that are no longer there; `num_unread`, runs that have not been read yet.
        """
        with self._lock:
            self._refresh()
            is_whole = number < self._begin
            rows = [row.text for row in self._rows.values() if row.changed > number]
            gone = [] if is_whole else [name for name, at in self._gone.items() if at > number]
            return self._answer(rows, is_whole=is_whole, gone=gone)

    def newest(self) -> dict[str, Any]:
        """Return the newest runs, at most `NUM_AT_ONCE`: what `since` returns, for the page as it is served."""
        with self._lock:
            self._refresh(NUM_AT_ONCE)
            newest = sorted(self._rows.values(), key=lambda row: row.created, reverse=True)[:NUM_AT_ONCE]
            answer: dict[str, Any] = json.loads(self._answer([row.text for row in newest], is_whole=True, gone=[]))
            num_left_out = len(self._rows) - len(newest)
            return answer | {"number": 0, "num_unread": len(self._unread) + num_left_out} if num_left_out else answer

    def _answer(self, rows: Iterable[bytes], **facts: Any) -> bytes:
        facts |= {"number": next(self._numbers), "num_unread": len(self._unread)}
        return json.dumps(facts).encode()[:-1] + b', "rows": [' + b", ".join(rows) + b"]}"

    def _refresh(self, num_wanted: float = inf) -> None:
        names = self._runs.names()
        present = set(names)
        for name in self._rows.keys() - present:
            del self._rows[name]
            self._gone[name] = next(self._numbers)
        known = {*self._rows, *self._unread}
        new = [name for name in names if name not in known]
        if new:
            order = {name: (self._runs.touched(name) or _NEVER, name) for name in new}
            self._unread = sorted(new, key=order.__getitem__, reverse=True) + self._unread
        self._unread = [name for name in self._unread if name in present]
        states = {name: row.state for name, row in self._rows.items() if row.state != "completed"}
        self._read([name for name, state in states.items() if state in _FOLLOWED])
        self._read(self._written([name for name, state in states.items() if state not in _FOLLOWED]))
        end = monotonic() + _READING_S
        while self._unread and len(self._rows) < num_wanted and monotonic() < end:
            self._read(self._unread[:_CHUNK])
            self._unread = self._unread[_CHUNK:]

    def _written(self, names: Sequence[str]) -> list[str]:
        """Return the runs whose state or records were written since they were read."""
        now = dict(zip(names, self._each(self._touched, names), strict=True))
        return [name for name, touched in now.items() if touched is None or touched != self._rows[name].touched]

    def _touched(self, run: str) -> Any:
        time = self._runs.touched(run)
        if time is not None:  # two writes in one tick of the clock look like one, so that a recent one tells nothing
            return None if datetime.now(UTC) - time < _RECENT else time
        try:
            return self._runs.state(run)
        except StarPOError:
            return None

    def _read(self, names: Sequence[str]) -> None:
        for name, (touched, facts) in zip(names, self._each(self._facts, names), strict=True):
            text = json.dumps(rounded(facts), ensure_ascii=False, allow_nan=False).encode("utf-8", "surrogatepass")
            earlier = self._rows.get(name)
            changed = earlier.changed if earlier and earlier.text == text else next(self._numbers)
            self._rows[name] = _Row(changed, facts["state"], facts["created"] or "", touched, text)

    def _facts(self, run: str) -> tuple[Any, dict[str, Any]]:
        touched = self._touched(run)
        if run in self._rows and self._rows[run].state == "running":
            try:
                return touched, self._reader.facts(run, self._reader.version(run))
            except StarPOError:  # deleted since it was listed, or damaged
                pass
        return touched, facts_or_fault(self._reader.store, run)

    def _each(self, read: Any, names: Sequence[str]) -> list[Any]:
        if self._reader.store.is_on_this_machine:
            return list(map(read, names))
        with ThreadPoolExecutor(_NUM_READERS) as readers:
            return list(readers.map(read, names))
