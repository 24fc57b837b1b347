"""Ancestors and descendants of an artifact: the graph spanned by the manifests of all runs of a store.

    ARTIFACT -> work -> inputs, transitively      work -> works whose manifests name it, transitively

The nodes are works, not artifacts: everything that a stage produced from the same inputs (a checkpoint, its samples,
its metrics) shares one key. Dropped artifacts keep their manifests and therefore their place in the graph; a work
without any manifest left ends its chain.
"""

import difflib
import re
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime

from starpo.ragen.core.errors import ArtifactDamagedError, ArtifactMissingError, ConfigError, StoreError, first_line
from starpo.ragen.evidence.audit.named import NamedArtifact, named_artifacts
from starpo.ragen.store import Store
from starpo.ragen.store.keeping.inventory import ArtifactId, take_inventory
from starpo.ragen.store.remote.opening import open_location
from starpo.schemas.manifest import Manifest

NUM_READERS = 8
"""Number of manifests read concurrently."""
SHOWN_DIGITS = 10
"""Digits of a key in output for people."""
_MAX_SHOWN = 5
_KEY = re.compile(r"[0-9a-f]{1,64}")

Edge = tuple[str, str, str]
"""(key of the input, its role, key of the work that reads it)."""


@dataclass(frozen=True)
class LineageStep:
    """A unit of work: everything that a stage produced from the same inputs.

    Attributes:
        key: Key shared by its artifacts.
        stage: Stage that produced it; '' if nothing of it is left in the store.
        kinds: Kinds of its artifacts in the store, sorted.
        dropped: Kinds of its artifacts that were dropped and can be recomputed, sorted.
        inputs: Role -> key.
        names: References to it by runs, as `run:iteration:stage`.
        distance: Steps from the requested work; negative for ancestors.
        replay_fault: Why its environment cannot be replayed; empty if it can, or if no environment was involved.
    """

    key: str
    stage: str
    kinds: tuple[str, ...]
    dropped: tuple[str, ...]
    inputs: dict[str, str]
    names: tuple[str, ...]
    distance: int
    replay_fault: str = ""

    @property
    def is_missing(self) -> bool:
        """Whether nothing of it is left, not even a manifest."""
        return not self.stage


@dataclass(frozen=True)
class Lineage:
    """Ancestors and descendants of a work.

    Attributes:
        root: The requested work.
        works: Key -> the root, its ancestors and its descendants, nearest first.
        edges: Edges between these works.
        missing: Keys of ancestors of which nothing is left; the chain is broken there.
        unreadable: Errors of unreadable manifests and records elsewhere in the store, which may hide descendants and
            names.
    """

    root: LineageStep
    works: dict[str, LineageStep]
    edges: tuple[Edge, ...]
    missing: tuple[str, ...]
    unreadable: tuple[str, ...]


def lineage(
    store: Store,
    artifact: str,
    on_progress: Callable[[int, int], None] | None = None,
    max_works: int | None = None,
) -> Lineage:
    """Find the ancestors and descendants of an artifact.

    Args:
        store: Store to search; all its manifests are read.
        artifact: `kind/key`, a key, a unique prefix of either, or `run:iteration:stage`.
        on_progress: Called with the number of manifests read and their total.
        max_works: Most works in the store. None: any number.

    Raises:
        ArtifactMissingError: If there is no such artifact.
        ConfigError: If the prefix is ambiguous, the run has no such iteration or stage, or there are too many works.
        StoreError: If there is no such run.
        ArtifactDamagedError: If the manifest of the artifact or of an ancestor is damaged.
    """
    inventory = take_inventory(open_location(store.url))
    kinds, dropped = _by_key(inventory.artifacts), _by_key(inventory.dropped)
    root = _resolve(
        store, artifact, {key: [*kinds.get(key, ()), *dropped.get(key, ())] for key in {**kinds, **dropped}}
    )
    num_works = len({**kinds, **dropped})
    if max_works is not None and num_works > max_works:
        raise ConfigError(
            f"{store.url} has {num_works:,} works, more than the {max_works:,} that are searched here; "
            f"`starpo lineage {artifact}` reads them all"
        )
    manifests, damaged = _manifests(store, kinds, dropped, on_progress)
    names, faults = _names(store)
    graph = _Graph(kinds, dropped, manifests, damaged, names)
    graph.add(root, 0)
    graph.walk(root, -1, graph.inputs)
    graph.walk(root, +1, graph.readers)
    edges = [
        (source, role, key)
        for key, work in graph.works.items()
        for role, source in sorted(work.inputs.items())
        if source in graph.works
    ]
    return Lineage(
        root=graph.works[root],
        works=dict(sorted(graph.works.items(), key=lambda item: (abs(item[1].distance), item[1].distance))),
        edges=tuple(edges),
        missing=tuple(key for key, work in graph.works.items() if work.is_missing),
        unreadable=(
            *(first_line(error) for key, error in damaged.items() if key not in graph.works),
            *faults,
        ),
    )


def near(whole: Lineage, depth: int) -> Lineage:
    """Return the part of a lineage at most `depth` steps away from its root; 0 for all of it."""
    works = {key: work for key, work in whole.works.items() if not depth or abs(work.distance) <= depth}
    edges = tuple(edge for edge in whole.edges if edge[0] in works and edge[2] in works)
    return Lineage(whole.root, works, edges, whole.missing, whole.unreadable)


@dataclass
class _Graph:
    kinds: dict[str, list[str]]
    dropped: dict[str, list[str]]
    manifests: dict[str, Manifest]
    damaged: dict[str, ArtifactDamagedError]
    names: dict[str, list[str]]
    works: dict[str, LineageStep] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._readers: dict[str, list[str]] = {}
        for key, manifest in self.manifests.items():
            for source in manifest.inputs.values():
                self._readers.setdefault(source, []).append(key)

    def add(self, key: str, distance: int) -> None:
        if distance <= 0 and key in self.damaged:
            raise self.damaged[key]
        manifest = self.manifests.get(key)
        self.works[key] = LineageStep(
            key=key,
            stage=manifest.stage.name if manifest else "",
            kinds=tuple(sorted(self.kinds.get(key, ()))),
            dropped=tuple(sorted(self.dropped.get(key, ()))),
            inputs=dict(manifest.inputs) if manifest else {},
            names=tuple(self.names.get(key, ())),
            distance=distance,
            replay_fault=manifest.replay_fault if manifest else "",
        )

    def inputs(self, key: str) -> Iterable[str]:
        return self.works[key].inputs.values()

    def readers(self, key: str) -> Iterable[str]:
        return sorted(set(self._readers.get(key, ())))

    def walk(self, root: str, step: int, following: Callable[[str], Iterable[str]]) -> None:
        """Add everything reachable from the root, breadth first."""
        layer, distance = [root], 0
        while layer:
            distance += step
            reached = [key for start in layer for key in following(start) if key not in self.works]
            layer = list(dict.fromkeys(reached))
            for key in layer:
                self.add(key, distance)


def _resolve(store: Store, artifact: str, kinds: dict[str, list[str]]) -> str:
    """Return the key that the text refers to."""
    if ":" in artifact:
        return _named_key(store, artifact)
    kind, _, prefix = artifact.rpartition("/")
    matching = [key for key in kinds if key.startswith(prefix) and (not kind or kind in kinds[key])]
    if not _KEY.fullmatch(prefix) or not matching:
        raise ArtifactMissingError(
            f"no artifact '{artifact}' in the store {store.url}; expected kind/key, a key or its beginning "
            "(hexadecimal), or run:iteration:stage. `starpo show RUN --iteration N` prints the keys of an iteration"
        )
    if len(matching) > 1:
        shown = ", ".join(sorted(matching)[:_MAX_SHOWN])
        more = f" and {len(matching) - _MAX_SHOWN} more" if len(matching) > _MAX_SHOWN else ""
        raise ConfigError(f"'{artifact}' matches {len(matching)} keys: {shown}{more}; give more of its digits")
    return matching[0]


def _named_key(store: Store, artifact: str) -> str:
    run, iteration, stage = (*artifact.split(":", 2), "", "")[:3]
    named = [entry for entry in named_artifacts(store, run) if str(entry.iteration) == iteration]
    if not named:
        recorded = store.runs.iterations(run)
        known = f"it has {min(recorded)} to {max(recorded)}" if recorded else "it has none"
        raise ConfigError(f"'{artifact}': the run {run} has no iteration '{iteration}'; {known}")
    matching = [entry for entry in named if entry.stage == stage]
    if not matching:
        stages = list(dict.fromkeys(entry.stage for entry in named))
        close = difflib.get_close_matches(stage, stages, n=3, cutoff=0.5)
        hint = f"did you mean {', '.join(close)}?" if close else f"it has {', '.join(stages)}"
        raise ConfigError(f"'{artifact}': iteration {iteration} of {run} has no stage '{stage}'; {hint}")
    return matching[0].key


def _manifests(
    store: Store,
    kinds: dict[str, list[str]],
    dropped: dict[str, list[str]],
    on_progress: Callable[[int, int], None] | None,
) -> tuple[dict[str, Manifest], dict[str, ArtifactDamagedError]]:
    """Read one manifest per key (all kinds of a key have the same inputs); return manifests and errors, by key."""

    def read(key: str) -> Manifest | ArtifactDamagedError | None:
        try:
            return store.manifest(kinds[key][0], key) if key in kinds else store.dropped(dropped[key][0], key)
        except ArtifactDamagedError as error:
            return error
        except ArtifactMissingError:  # deleted after the inventory was taken
            return None

    keys = list({**kinds, **dropped})
    manifests: dict[str, Manifest] = {}
    damaged: dict[str, ArtifactDamagedError] = {}
    with ThreadPoolExecutor(NUM_READERS) as readers:
        for number, (key, outcome) in enumerate(zip(keys, readers.map(read, keys), strict=True), start=1):
            if isinstance(outcome, Manifest):
                manifests[key] = outcome
            elif outcome is not None:
                damaged[key] = outcome
            if on_progress:
                on_progress(number, len(keys))
    return manifests, damaged


def _by_key(artifacts: Iterable[ArtifactId]) -> dict[str, list[str]]:
    kinds: dict[str, list[str]] = {}
    for artifact in artifacts:
        kinds.setdefault(artifact.key, []).append(artifact.kind)
    return kinds


def _names(store: Store) -> tuple[dict[str, list[str]], list[str]]:
    """Map each key to its references by runs, oldest run first; and return the faults of runs that cannot be read."""
    runs: list[tuple[datetime, str, list[NamedArtifact]]] = []
    faults: list[str] = []
    for name in store.runs.names():
        try:
            if run := store.runs.find(name):
                runs.append((run.created, name, named_artifacts(store, name)))
        except StoreError as error:
            faults.append(first_line(error))
    names: dict[str, dict[str, None]] = {}
    for _, _, named in sorted(runs, key=lambda run: run[:2]):
        for artifact in named:
            names.setdefault(artifact.key, {})[artifact.place] = None
    return {key: list(places) for key, places in names.items()}, faults
