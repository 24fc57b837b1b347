"""Which runs of a store branch off from which others, determined by shared checkpoints, not by the records' claims.

records of runs -> checkpoints of each -> the older run with the longest shared history -> Branch
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from starpo.ragen.config.load import recorded_config
from starpo.ragen.config.structure import changed_settings
from starpo.ragen.core.errors import ArtifactDamagedError, ConfigError, StoreError
from starpo.ragen.store import Store
from starpo.ragen.store.keeping.checkpoints import policies
from starpo.ragen.store.records.run import Run


@dataclass
class Branch:
    """A run, and the runs that branch off from it.

    Attributes:
        run: Record of the run.
        checkpoints: n -> key of the checkpoint after n updates.
        start: Number of updates shared with the parent run; 0 without a parent.
        changed: Dotted path -> (parent's value, own value), for settings that differ in the first iteration that is not
            shared. None if the settings of either run are of another release.
        forks: Runs that branch off from this one, oldest first.
    """

    run: Run
    checkpoints: Mapping[int, str]
    start: int = 0
    changed: dict[str, tuple[Any, Any]] | None = field(default_factory=dict)
    forks: list["Branch"] = field(default_factory=list)


def family(store: Store) -> list[Branch]:
    """Arrange the training runs of a store as trees, each run under the one that it branches off from.

    A run branches off from an older one if they share at least one update; runs that share only a warm start are
    siblings. Among several older runs, the parent is the one with most shared updates, the oldest in a tie. Runs with
    unreadable records are left out (`ragen runs` names them).

    Returns:
        Runs without a parent, oldest first.
    """
    branches: list[Branch] = []
    roots: list[Branch] = []
    for run in sorted(_readable(store), key=lambda run: (run.created, run.name)):
        try:
            branch = Branch(run, policies(store, run.name))
        except ArtifactDamagedError:
            continue
        parent = max(branches, key=lambda older: _num_shared(older, branch), default=None)  # the first in a tie
        branch.start = _num_shared(parent, branch) if parent else 0
        if parent and branch.start:
            branch.changed = _changed(parent.run, run, branch.start)
            parent.forks.append(branch)
        else:
            roots.append(branch)
        branches.append(branch)
    return roots


def _readable(store: Store) -> list[Run]:
    runs = []
    for name in store.runs.names():
        try:
            runs.append(store.runs.get(name))
        except StoreError:
            continue
    return [run for run in runs if run.flow == "starpo"]


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
