"""What takes up a store: numbers and bytes by kind and by run.

Reachability -> measure -> Usage

Runs share artifacts, so the bytes of runs do not add up to those of the store: what only one run needs is its own, and
would go if that run were deleted.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from starpo.ragen.store.keeping.inventory import StoredFolder
from starpo.ragen.store.keeping.reachability import Reachability
from starpo.ragen.store.records import answers, studies
from starpo.ragen.store.remote.location import Location


@dataclass(frozen=True)
class KindUsage:
    """What one kind of thing takes up."""

    kind: str
    """Kind of artifacts; or `dropped`, `unfinished`, `temporary`, `quarantine`, `records`, `answers`."""
    number: int
    """Of folders; of records and answers: files."""
    size_bytes: int
    """All files of these folders, manifests included."""
    unreached_number: int
    """Of those that no run needs; 0 for what is no artifact."""
    unreached_bytes: int
    """Of those that no run needs."""


@dataclass(frozen=True)
class RunUsage:
    """What one run needs, directly and through what that was made from."""

    run: str
    """Its name."""
    number: int
    """Artifacts."""
    size_bytes: int
    """Of all of them."""
    own_bytes: int
    """Of those that no other run needs."""
    shared_bytes: int
    """Of those that another run needs too."""
    num_dropped: int
    """Artifacts that were not kept and can be made again."""
    num_faults: int
    """Artifacts that are missing or damaged."""


@dataclass(frozen=True)
class Usage:
    """What takes up a store."""

    kinds: list[KindUsage]
    """The largest first."""
    runs: list[RunUsage]
    """The largest first."""

    @property
    def size_bytes(self) -> int:
        """Of everything."""
        return sum(kind.size_bytes for kind in self.kinds)


def measure(location: Location) -> Usage:
    """Measure a store by listing it.

    Raises:
        StoreError: If nothing is in it, or it cannot be read.
        ArtifactDamagedError: If a run's records cannot be read.
    """
    store = Reachability(location)
    inventory, reaches = store.inventory, store.of_all()
    num_users = Counter(artifact for reach in reaches.values() for artifact in reach.artifacts)
    reached = {key for reach in reaches.values() for key in reach.keys}
    runs = []
    for run, reach in reaches.items():
        sizes = {artifact: inventory.artifacts[artifact].size_bytes for artifact in reach.artifacts}
        own = sum(size for artifact, size in sizes.items() if num_users[artifact] == 1)
        total = sum(sizes.values())
        runs.append(RunUsage(run, len(sizes), total, own, total - own, len(reach.dropped), len(reach.faults)))
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
    )


def _size(folders: Iterable[StoredFolder]) -> int:
    return sum(folder.size_bytes for folder in folders)
