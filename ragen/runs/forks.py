"""Which runs of a store branch off from which others: training runs by shared checkpoints, replays by their records.

records of runs -> checkpoints of each -> the older run with the longest shared history -> Branch
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import count
from typing import Any

from starpo.ragen.config.load import recorded_config
from starpo.ragen.config.structure import changed_settings
from starpo.ragen.core.errors import ConfigError, StoreError
from starpo.ragen.store import Store
from starpo.ragen.store.keeping.checkpoints import policies
from starpo.ragen.store.records.run import RunRecord


@dataclass
class Branch:
    """A run, and the runs that branch off from it.

    Attributes:
        run: Record of the run.
        checkpoints: n -> key of the checkpoint after n updates.
        start: Number of updates shared with the parent run; for a replay, those before it. None without a parent.
        changed: Dotted path -> (parent's value, own value), for settings that differ in the first iteration that is not
            shared. None if the settings of either run are of another release.
        forks: Runs that branch off from this one, oldest first.
    """

    run: RunRecord
    checkpoints: Mapping[int, str]
    start: int | None = None
    changed: dict[str, tuple[Any, Any]] | None = field(default_factory=dict)
    forks: list["Branch"] = field(default_factory=list)


def family(store: Store) -> list[Branch]:
    """Arrange the runs of a store as trees, each run under the one that it branches off from.

    A training run branches off from an older one if they share at least one update; runs that share only a warm start
    are siblings. Among several older runs, the parent is the one with most shared updates, the oldest in a tie. A
    replay branches off from the run whose rollouts it replays, after that run's forks. Imports stand by themselves.
    Runs with unreadable records are left out (`starpo runs` names them).

    Returns:
        Runs without a parent, oldest first.
    """
    trained = _History()
    roots: list[Branch] = []
    known: dict[str, Branch] = {}
    runs = sorted(_readable(store), key=lambda run: (run.flow == "replay", run.created, run.name))
    settings = cache(partial(_settings, {run.name: run for run in runs}))
    for run in runs:
        try:
            branch = Branch(run, policies(store, run.name))
        except StoreError:
            continue
        if run.flow == "replay":
            start = run.parameters.get("start")
            parent, start = known.get(str(run.parameters.get("base"))), start if isinstance(start, int) else 0
        else:
            parent, start = trained.parent_of(branch)
        if parent:
            branch.start, branch.changed = start, _changed(settings(parent.run.name, start), settings(run.name, start))
            parent.forks.append(branch)
        else:
            roots.append(branch)
        known[run.name] = branch
        if run.flow == "starpo":
            trained.add(branch)
    return sorted(roots, key=lambda root: (root.run.created, root.run.name))


def _readable(store: Store) -> list[RunRecord]:
    runs = []
    for name in store.runs.names():
        try:
            runs.append(store.runs.get(name))
        except StoreError:
            continue
    return runs


class _History:
    """The checkpoints of runs as a tree: a node for every history that some run has, with the first run that has it."""

    def __init__(self) -> None:
        self._nodes: dict[tuple[int, str], int] = {}
        self._first: dict[int, Branch] = {}

    def add(self, branch: Branch) -> None:
        """Add a run, after all older ones."""
        node = 0
        for key in _in_order(branch.checkpoints):
            node = self._nodes.setdefault((node, key), len(self._nodes) + 1)
            self._first.setdefault(node, branch)

    def parent_of(self, branch: Branch) -> tuple[Branch | None, int]:
        """Return the first run with most updates in common, and their number; None and 0 if it is none."""
        node = num_shared = 0
        for key in _in_order(branch.checkpoints):
            if (node, key) not in self._nodes:
                break
            node = self._nodes[node, key]
            num_shared += 1
        return (self._first[node], num_shared - 1) if num_shared > 1 else (None, 0)


def _in_order(checkpoints: Mapping[int, str]) -> Iterator[str]:
    """Yield the keys of the checkpoints after 0, 1, 2, ... updates, up to the first that is not known."""
    for number in count():
        if number not in checkpoints:
            return
        yield checkpoints[number]


def _settings(runs: Mapping[str, RunRecord], run: str, iteration: int) -> dict[str, Any] | None:
    """Return the settings of an iteration that are compared; None if they are of another release."""
    try:
        config = recorded_config(run, runs[run].config, "").at(iteration)
    except ConfigError:
        return None
    return config.model_dump(mode="json", exclude={"schedule", "fresh"})


def _changed(older: dict[str, Any] | None, newer: dict[str, Any] | None) -> dict[str, tuple[Any, Any]] | None:
    return None if older is None or newer is None else dict(changed_settings(older, newer))
