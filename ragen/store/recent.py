"""The last few tables that this process stored or read, so that the next stage need not decode them again.

Looked up by the hashes of the files, and only after these were checked: what is returned is what they hold, whichever
artifact and store they belong to.
"""

from collections import OrderedDict
from threading import Lock

import pyarrow as pa

from ragen.store.files import digests_of
from schemas.manifest import Manifest

Content = tuple[object, ...]
"""What a dataset holds: its kind, the version of its schema, its number of rows, names and hashes of its files."""

_MAX_TABLES = 16
_MAX_BYTES = 64 * 2**20
"""Of one table; a larger one is read from its files each time."""


class RecentTables:
    """Tables by content, the least recently used forgotten first. May be shared between threads."""

    def __init__(self) -> None:
        self._tables: OrderedDict[Content, pa.Table] = OrderedDict()
        self._lock = Lock()

    def get(self, content: Content) -> pa.Table | None:
        """The table; None: it is not held."""
        with self._lock:
            if content in self._tables:
                self._tables.move_to_end(content)
            return self._tables.get(content)

    def put(self, content: Content, table: pa.Table) -> None:
        """Hold a table, unless it is large."""
        if table.nbytes > _MAX_BYTES:
            return
        with self._lock:
            self._tables[content] = table
            if len(self._tables) > _MAX_TABLES:
                self._tables.popitem(last=False)


def content_of(manifest: Manifest) -> Content:
    """Equal for artifacts of the same bytes."""
    return manifest.kind, manifest.dataset_version, manifest.num_rows, *digests_of(manifest.files)
