"""Which runs of a store branch off from which others: training runs by shared checkpoints, replays by their records.

records of runs -> checkpoints of each -> the older run with the longest shared history -> Branch
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from starpo.ragen.config.load import recorded_config
from starpo.ragen.config.structure import changed_settings
from starpo.ragen.core.errors import ConfigError, StoreError
from starpo.ragen.store import Store
from starpo.ragen.store.keeping.checkpoints import policies
from starpo.ragen.store.records.run import Run


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

    run: Run
    checkpoints: Mapping[int, str]
    start: int | None = None
    changed: dict[str, tuple[Any, Any]] | None = field(default_factory=dict)
    forks: list["Branch"] = field(default_factory=list)


def family(store: Store) -> list[Branch]:
    """Arrange the runs of a store as trees, each run under the one that it branches off from.

    A training run branches off from an older one if they share at least one update; runs that share only a warm start
    are siblings. Among several older runs, the parent is the one with most shared updates, the oldest in a tie. A
    replay branches off from the run whose rollouts it replays, after that run's forks. Imports stand by themselves.
    Runs with unreadable records are left out (`ragen runs` names them).

    Returns:
        Runs without a parent, oldest first.
    """
    trained: list[Branch] = []
    roots: list[Branch] = []
    known: dict[str, Branch] = {}
    for run in sorted(_readable(store), key=lambda run: (run.flow == "replay", run.created, run.name)):
        try:
            branch = Branch(run, policies(store, run.name))
        except StoreError:
            continue
        if run.flow == "replay":
            start = run.parameters.get("start")
            parent, start = known.get(str(run.parameters.get("base"))), start if isinstance(start, int) else 0
        else:
            parent = max(trained, key=lambda older: _num_shared(older, branch), default=None)  # the first in a tie
            start = _num_shared(parent, branch) if parent else 0
            parent = parent if start else None
        if parent:
            branch.start, branch.changed = start, _changed(parent.run, run, start)
            parent.forks.append(branch)
        else:
            roots.append(branch)
        known[run.name] = branch
        if run.flow == "starpo":
            trained.append(branch)
    return sorted(roots, key=lambda root: (root.run.created, root.run.name))


def _readable(store: Store) -> list[Run]:
    runs = []
    for name in store.runs.names():
        try:
            runs.append(store.runs.get(name))
        except StoreError:
            continue
    return runs


def _num_shared(older: Branch, newer: Branch) -> int:
    """Number of updates up to which all checkpoints of both runs are the same."""
    shared = 0
    while shared in older.checkpoints and older.checkpoints[shared] == newer.checkpoints.get(shared):
        shared += 1
    return max(0, shared - 1)


def _changed(older: Run, newer: Run, start: int) -> dict[str, tuple[Any, Any]] | None:
    try:
        there, here = (recorded_config(run.name, run.config, "").at(start) for run in (older, newer))
    except ConfigError:
        return None
    alike = {"schedule", "fresh"}
    return dict(
        changed_settings(there.model_dump(mode="json", exclude=alike), here.model_dump(mode="json", exclude=alike))
    )
