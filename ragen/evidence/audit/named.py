"""The artifacts that the iterations of runs reference: the starting point of every view, audit and lineage.

runs/<run>/iterations -> NamedArtifact -> stored -> views
"""

import fnmatch
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from starpo.ragen.core.errors import StoreError
from starpo.ragen.store import Store
from starpo.ragen.store.measurements import measurements
from starpo.ragen.store.records.seals import StageKeys

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class NamedArtifact:
    """A reference to an artifact by an iteration of a run.

    Attributes:
        run: Name of the run.
        iteration: Number of updates done before.
        stage: Stage as recorded by the run, such as `rollout` or `evaluate:sokoban`.
        kind: Kind of the artifact.
        key: Key of the artifact.
        is_reused: Whether an earlier iteration of the same run already references it (Online-k).
    """

    run: str
    iteration: int
    stage: str
    kind: str
    key: str
    is_reused: bool

    @property
    def place(self) -> str:
        """The reference as users write it: `run:iteration:stage`."""
        return f"{self.run}:{self.iteration}:{self.stage}"


def named_artifacts(store: Store, run: str) -> list[NamedArtifact]:
    """Return all artifacts that a run references, by iteration and stage, without duplicates within an iteration.

    Raises:
        StoreError: If there is no such run; the message suggests similar names.
    """
    store.runs.get(run)
    return _artifacts(run, store.runs.iterations(run))


def measured_artifacts(store: Store, run: str) -> list[NamedArtifact]:
    """Return what was measured of a run's turns, which no record names, by iteration (`measurements`).

    Raises:
        StoreError: If there is no such run, or a manifest cannot be read.
    """
    return _artifacts(run, measurements(store, store.runs.iterations(run)))


def _artifacts(run: str, iterations: Mapping[int, StageKeys]) -> list[NamedArtifact]:
    artifacts: list[NamedArtifact] = []
    earlier: set[tuple[str, str]] = set()
    for iteration, stages in iterations.items():
        named = {(kind, key): stage for stage, keys in reversed(stages.items()) for kind, key in keys.items()}
        artifacts += [
            NamedArtifact(run, iteration, stage, kind, key, (kind, key) in earlier)
            for (kind, key), stage in reversed(named.items())
        ]
        earlier |= set(named)
    return artifacts


def matching_runs(store: Store, patterns: Iterable[str]) -> list[str]:
    """Resolve names and glob patterns (`*`, `?`, `[]`) to run names without duplicates; matches come sorted by name.

    A pattern leaves out runs whose records cannot be read; the log names them.

    Raises:
        StoreError: If a run does not exist, or a pattern matches none.
    """
    names: dict[str, None] = {}
    for pattern in patterns:
        if not any(sign in pattern for sign in "*?["):
            names[store.runs.get(pattern).name] = None
            continue
        matching = []
        for name in fnmatch.filter(store.runs.names(), pattern):
            if fault := store.runs.fault(name):
                _log.warning("run %s is left out: %s", name, fault)
            elif store.runs.find(name) is not None:
                matching.append(name)
        if not matching:
            raise StoreError(f"no run matches '{pattern}' in {store.url}; `starpo runs` lists all runs")
        names |= dict.fromkeys(matching)
    return list(names)
