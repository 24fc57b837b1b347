"""Artifacts that a run needs: those its records name and, through their manifests' inputs, everything they were made
from.

    runs/<run>/iterations/*.json -> keys -> manifests -> inputs -> keys -> ... -> Reach
    sweeps/<sweep>/cells.json    -^                                         credits of reached turns -^

A sweep's cells are needed like a run's stages; the sweep appears among the runs as `sweeps/<sweep>`, which is not a
valid run name. A key identifies one piece of work, so all artifacts of a reached key are reached. An artifact may be
absent if it was dropped, or if it is a checkpoint whose update left its other artifacts: it can be derived again. Any
other gap is a fault, and so is a manifest that was changed, as the artifacts behind it are unknown.
"""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from starpo.ragen.core.errors import ArtifactDamagedError, ArtifactMissingError, StoreError
from starpo.ragen.store.artifacts.artifacts import Artifacts
from starpo.ragen.store.attempts import kind_of
from starpo.ragen.store.keeping.inventory import ArtifactId, Inventory, take_inventory
from starpo.ragen.store.records.runs import Runs, StageKeys
from starpo.ragen.store.records.studies import SWEEPS, named_cells, sweep_names
from starpo.ragen.store.remote.location import NUM_REQUESTS, Location
from starpo.schemas.datasets import CREDIT_ESTIMATES, CREDITS, DATASETS, TURNS
from starpo.schemas.manifest import Manifest

CHECKPOINT = "checkpoint"
_MISSING = "is not in the store"
_KIND_OF_ROLE = {kind: kind for kind in (*DATASETS, CHECKPOINT)} | {"reference": CHECKPOINT}


@dataclass(frozen=True)
class Fault:
    """An artifact that is needed and is missing or damaged."""

    artifact: ArtifactId
    """The artifact; if only its role is known and not its kind, the role takes the place of the kind."""
    what: str
    """What is wrong with it."""
    named_by: str
    """What needs it."""

    def __str__(self) -> str:
        return f"{self.artifact} {self.what}; needed by {self.named_by}"


@dataclass(frozen=True)
class Reach:
    """Everything a run needs."""

    artifacts: dict[ArtifactId, Manifest] = field(default_factory=dict)
    """Existing artifacts."""
    dropped: dict[ArtifactId, Manifest | None] = field(default_factory=dict)
    """Artifacts that were not kept and can be derived again, such as checkpoints; None: without their manifest."""
    faults: list[Fault] = field(default_factory=list)
    """Missing or damaged artifacts. If there are any, `artifacts` may be incomplete."""

    @property
    def keys(self) -> set[str]:
        """Keys of everything needed, existing or not."""
        needed = (*self.artifacts, *self.dropped, *(fault.artifact for fault in self.faults))
        return {artifact.key for artifact in needed}


Roots = dict[str, dict[int, StageKeys]]
"""Run -> iteration -> stage -> {kind: key}."""


class Reachability:
    """Contents of a store and the needs of its runs, at one moment.

    Attributes:
        roots: Artifacts named by the records of every run. They are read before anything is listed, so that what a
            running run stores and names meanwhile does not count as missing.
        inventory: Contents of the store.

    Raises:
        StoreError: If the store cannot be read or is empty.
        ArtifactDamagedError: If a run's records cannot be read.
    """

    def __init__(self, location: Location, roots: Roots | None = None) -> None:
        """List the store; `roots` are read from it unless given."""
        self._artifacts = Artifacts(location)
        self._manifests: dict[ArtifactId, Manifest | str] = {}
        self._reaches: dict[str, Reach] = {}
        self.roots = read_roots(location) if roots is None else roots
        self.inventory: Inventory = take_inventory(location)
        self._of_key: dict[str, list[ArtifactId]] = {}
        for artifact in (*self.inventory.artifacts, *self.inventory.dropped):
            self._of_key.setdefault(artifact.key, []).append(artifact)

    def of(self, run: str) -> Reach:
        """Return what a run needs."""
        if run not in self._reaches:
            self._reaches[run] = self._follow(run)
        return self._reaches[run]

    def of_all(self) -> dict[str, Reach]:
        """Return what every run needs, by run name."""
        return {run: self.of(run) for run in self.roots}

    def _follow(self, run: str) -> Reach:
        reach, reached, visited = Reach(), set[ArtifactId](), set[str]()
        wave: dict[ArtifactId, str] = {}
        for iteration, stages in self.roots[run].items():
            for stage, kind, key in _named(stages):
                wave.setdefault(ArtifactId(kind, key), f"run {run}, iteration {iteration}, stage {stage}")
        while wave:
            reached |= wave.keys()
            for wanted, named_by in wave.items():
                self._note_absence(reach, wanted, named_by)
            namers = {wanted.key: named_by for wanted, named_by in wave.items() if wanted.key not in visited}
            visited |= namers.keys()
            artifacts = [artifact for key in namers for artifact in self._of_key.get(key, ())]
            following: dict[ArtifactId, str] = {}
            for artifact, manifest in zip(artifacts, self._read(artifacts), strict=True):
                if isinstance(manifest, str):
                    reach.faults.append(Fault(artifact, manifest, namers[artifact.key]))
                    continue
                (reach.artifacts if artifact in self.inventory.artifacts else reach.dropped)[artifact] = manifest
                for role, key in manifest.inputs.items():
                    wanted = ArtifactId(_KIND_OF_ROLE.get(kind_of(role), role), key)
                    if wanted not in reached:
                        following.setdefault(wanted, f"{artifact} (its input '{role}') of run {run}")
            wave = following
        self._add_measured(reach, visited)
        return reach

    def _add_measured(self, reach: Reach, keys: set[str]) -> None:
        """Add what was measured on rollouts with these keys outside the records of runs: credit of turns, estimated
        and true."""
        kinds = (CREDITS.name, CREDIT_ESTIMATES.name)
        measured = [artifact for artifact in self.inventory.artifacts if artifact.kind in kinds]
        for artifact, manifest in zip(measured, self._read(measured), strict=True):
            if not isinstance(manifest, str) and manifest.inputs.get(TURNS.name) in keys:
                reach.artifacts[artifact] = manifest

    def _note_absence(self, reach: Reach, wanted: ArtifactId, named_by: str) -> None:
        ids = self._of_key.get(wanted.key, [])
        if wanted in ids or (ids and wanted.kind not in _KIND_OF_ROLE.values()):  # a role without a known kind
            return
        if ids and wanted.kind == CHECKPOINT:
            reach.dropped[wanted] = None
        else:
            reach.faults.append(Fault(wanted, _MISSING, named_by))

    def _read(self, artifacts: list[ArtifactId]) -> Iterator[Manifest | str]:
        new = [artifact for artifact in artifacts if artifact not in self._manifests]
        with ThreadPoolExecutor(NUM_REQUESTS) as pool:
            self._manifests.update(zip(new, pool.map(self._manifest, new), strict=True))
        return (self._manifests[artifact] for artifact in artifacts)

    def _manifest(self, artifact: ArtifactId) -> Manifest | str:
        try:
            if artifact in self.inventory.artifacts:
                return self._artifacts.manifest(*artifact)
            return self._artifacts.lasting_manifest(*artifact)
        except ArtifactMissingError:
            return _MISSING
        except ArtifactDamagedError as error:
            return f"is damaged: {error.what}"


def read_roots(location: Location) -> Roots:
    """Read the artifacts named by the records of every run.

    Raises:
        ArtifactDamagedError: If a record cannot be read.
    """
    roots, faults = readable_roots(location)
    for error in faults.values():
        raise error
    return roots


def readable_roots(location: Location) -> tuple[Roots, dict[str, StoreError]]:
    """Read the artifacts named by the records of every run, as far as these can be read.

    Returns:
        Those of the runs, and run -> error for the others.
    """
    runs = Runs(location)

    def named(place: str) -> dict[int, StageKeys] | StoreError:
        folder, _, sweep = place.rpartition("/")
        try:
            return {0: named_cells(location, sweep)} if folder == SWEEPS else runs.iterations(place)
        except StoreError as error:
            return error

    places = [*runs.names(), *(f"{SWEEPS}/{name}" for name in sweep_names(location))]
    with ThreadPoolExecutor(NUM_REQUESTS) as pool:
        outcomes = dict(zip(places, pool.map(named, places), strict=True))
    faults = {place: error for place, error in outcomes.items() if isinstance(error, StoreError)}
    return {place: stages for place, stages in outcomes.items() if not isinstance(stages, StoreError)}, faults


def named_keys(roots: Roots) -> set[str]:
    """Return all keys that the records name."""
    return {key for iterations in roots.values() for stages in iterations.values() for _, _, key in _named(stages)}


def describe(faults: Iterable[Fault], limit: int = 5) -> str:
    """Format faults, one per line; only the first `limit`."""
    lines = list(dict.fromkeys(str(fault) for fault in faults))
    return "\n".join(f"  {line}" for line in lines[:limit]) + (
        f"\n  and {len(lines) - limit} more" if len(lines) > limit else ""
    )


def _named(stages: StageKeys) -> Iterator[tuple[str, str, str]]:
    return ((stage, kind, key) for stage, keys in stages.items() for kind, key in keys.items())
