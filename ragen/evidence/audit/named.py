"""Which artifacts the iterations of some runs name: what every view, audit and lineage starts from.

runs/<run>/iterations -> NamedArtifact -> stored -> views
"""

import fnmatch
from collections.abc import Iterable
from dataclasses import dataclass

from starpo.ragen.core.errors import StoreError
from starpo.ragen.store import Store


@dataclass(frozen=True)
class NamedArtifact:
    """An artifact by the name that a run has for it.

    Attributes:
        run: The run.
        iteration: Updates done before.
        stage: The stage as the run recorded it, such as `rollout` or `evaluate:sokoban`.
        kind: The artifact's kind.
        key: Its key.
        is_reused: Has an earlier iteration of the same run named it already (Online-k)?
    """

    run: str
    iteration: int
    stage: str
    kind: str
    key: str
    is_reused: bool

    @property
    def place(self) -> str:
        """The name, as people write it: `run:iteration:stage`."""
        return f"{self.run}:{self.iteration}:{self.stage}"


def named_artifacts(store: Store, run: str) -> list[NamedArtifact]:
    """All artifacts that a run's iterations name, by iteration and stage; what one iteration names twice is there once.

    Raises:
        StoreError: If there is no such run; the message names those that are near.
    """
    store.runs.get(run)
    found: list[NamedArtifact] = []
    earlier: set[tuple[str, str]] = set()
    for iteration, stages in store.runs.iterations(run).items():
        named = {(kind, key): stage for stage, keys in reversed(stages.items()) for kind, key in keys.items()}
        found += [
            NamedArtifact(run, iteration, stage, kind, key, (kind, key) in earlier)
            for (kind, key), stage in reversed(named.items())
        ]
        earlier |= set(named)
    return found


def matching_runs(store: Store, patterns: Iterable[str]) -> list[str]:
    """Names of runs, each once: a name stands for itself, a pattern with `*`, `?` or `[]` for all that match, by name.

    Raises:
        StoreError: If a name is no run's, or a pattern matches none.
    """
    names: dict[str, None] = {}
    for pattern in patterns:
        if not any(sign in pattern for sign in "*?["):
            names[store.runs.get(pattern).name] = None
            continue
        fitting = fnmatch.filter(store.runs.names(), pattern)
        matching = [name for name in fitting if store.runs.find(name) is not None]
        if not matching:
            raise StoreError(f"no run matches '{pattern}' in {store.url}; `ragen runs` lists those there are")
        names |= dict.fromkeys(matching)
    return list(names)
