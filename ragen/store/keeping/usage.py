"""Disk usage of a store: numbers and bytes by kind and by run.

Reachability -> measure -> Usage

Runs share artifacts, so the bytes of all runs do not add up to those of the store. What only one run needs counts as
its own, and could be deleted with that run.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from starpo.ragen.core.errors import first_line
from starpo.ragen.store.keeping.inventory import StoredFolder
from starpo.ragen.store.keeping.reachability import Reachability, readable_roots
from starpo.ragen.store.records import answers, studies
from starpo.ragen.store.remote.location import Location


@dataclass(frozen=True)
class KindUsage:
    """Usage of one kind."""

    kind: str
    """Kind of artifacts; or `dropped`, `unfinished`, `temporary`, `quarantine`, `records`, `answers`."""
    number: int
    """Number of folders; for records and answers, of files."""
    size_bytes: int
    """Size of all files in these folders, manifests included."""
    unreached_number: int
    """Number of artifacts that no run needs; 0 for everything that is not an artifact."""
    unreached_bytes: int
    """Their size."""


@dataclass(frozen=True)
class RunUsage:
    """Usage of one run: what it needs, directly and as inputs of that."""

    run: str
    """Name of the run."""
    number: int
    """Number of artifacts."""
    size_bytes: int
    """Size of all of them."""
    own_bytes: int
    """Size of those that no other run needs."""
    shared_bytes: int
    """Size of those that another run needs as well."""
    num_dropped: int
    """Artifacts that were not kept and can be derived again."""
    num_faults: int
    """Artifacts that are missing or damaged."""


@dataclass(frozen=True)
class Usage:
    """Usage of a store."""

    kinds: list[KindUsage]
    """Largest first."""
    runs: list[RunUsage]
    """Largest first."""
    damaged: dict[str, str]
    """Run -> why its records cannot be read: what only it needs counts as needed by no run."""

    @property
    def size_bytes(self) -> int:
        """Total size."""
        return sum(kind.size_bytes for kind in self.kinds)


def measure(location: Location) -> Usage:
    """Measure the usage of a store by listing it.

    Raises:
        StoreError: If it is empty or cannot be read.
    """
    roots, faults = readable_roots(location)
    store = Reachability(location, roots)
    inventory, reaches = store.inventory, store.of_all()
    num_users = Counter(artifact for reach in reaches.values() for artifact in reach.artifacts)
    reached = {key for reach in reaches.values() for key in reach.keys}
    runs = []
    for run, reach in reaches.items():
        sizes = {artifact: inventory.artifacts[artifact].size_bytes for artifact in reach.artifacts}
        own_bytes = sum(size for artifact, size in sizes.items() if num_users[artifact] == 1)
        total = sum(sizes.values())
        runs.append(
            RunUsage(run, len(sizes), total, own_bytes, total - own_bytes, len(reach.dropped), len(reach.faults))
        )
    kinds = []
    for kind in sorted({artifact.kind for artifact in inventory.artifacts}):
        folders = {artifact: folder for artifact, folder in inventory.artifacts.items() if artifact.kind == kind}
        unreached = [folder for artifact, folder in folders.items() if artifact.key not in reached]
        kinds.append(KindUsage(kind, len(folders), _size(folders.values()), len(unreached), _size(unreached)))
    for name, others in {
        "dropped": inventory.dropped.values(),
        "unfinished": inventory.unfinished.values(),
        "temporary": inventory.temporary,
        "quarantine": inventory.quarantine,
    }.items():
        if others:
            kinds.append(KindUsage(name, len(others), _size(others), 0, 0))
    for name, places in {"records": ("runs", *studies.FOLDERS), "answers": (answers.FOLDER,)}.items():
        files = [file for place in places for file in location.files(place)]
        if files or name == "records":
            kinds.append(KindUsage(name, len(files), sum(file.size_bytes for file in files), 0, 0))
    return Usage(
        kinds=sorted(kinds, key=lambda usage: (-usage.size_bytes, usage.kind)),
        runs=sorted(runs, key=lambda usage: (-usage.size_bytes, usage.run)),
        damaged={run: first_line(error) for run, error in faults.items()},
    )


def _size(folders: Iterable[StoredFolder]) -> int:
    return sum(folder.size_bytes for folder in folders)
