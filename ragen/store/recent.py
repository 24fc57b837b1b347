"""The last few tables that this process stored or read, so that the next stage need not decode them again.

Looked up by manifest digest, and only after the files' hashes were checked: what is returned is what they hold.
"""

from collections import OrderedDict
from threading import Lock

import pyarrow as pa

_MAX_TABLES = 16
_MAX_BYTES = 64 * 2**20
"""Of one table; a larger one is read from its files each time."""


class RecentTables:
    """Tables by manifest digest, the least recently used forgotten first. May be shared between threads."""

    def __init__(self) -> None:
        self._tables: OrderedDict[str, pa.Table] = OrderedDict()
        self._lock = Lock()

    def get(self, manifest_digest: str) -> pa.Table | None:
        """The table; None: it is not held."""
        with self._lock:
            if manifest_digest in self._tables:
                self._tables.move_to_end(manifest_digest)
            return self._tables.get(manifest_digest)

    def put(self, manifest_digest: str, table: pa.Table) -> None:
        """Hold a table, unless it is large."""
        if table.nbytes > _MAX_BYTES:
            return
        with self._lock:
            self._tables[manifest_digest] = table
            if len(self._tables) > _MAX_TABLES:
                self._tables.popitem(last=False)
