"""Which runs of a store begin in which others: told by the checkpoints that they share, not by what they say.

records of runs -> checkpoints of each -> of the runs before it, the one with most in common -> Branch
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
    """A run, and those that begin in it.

    Attributes:
        run: Its record.
        checkpoints: n -> key of the checkpoint after n updates.
        start: Of a run that begins in another: updates that both share.
        changed: Dotted path -> (there, here), of settings that differ in the first iteration that is not shared. None:
            one of the two has settings of another release.
        forks: Runs that begin in this one, the oldest first.
    """

    run: Run
    checkpoints: Mapping[int, str]
    start: int = 0
    changed: dict[str, tuple[Any, Any]] | None = field(default_factory=dict)
    forks: list["Branch"] = field(default_factory=list)


def family(store: Store) -> list[Branch]:
    """The runs of a store that train, each under the run in which it begins.

    A run begins in an older one when both have made at least one update alike; runs that share a warm start alone stand
    side by side. Of several older runs it is the one with most updates in common, the oldest of equals. Runs whose
    records cannot be read are left out (`ragen runs` names them).

    Returns:
        Runs that begin in no other, the oldest first.
    """
    branches: list[Branch] = []
    roots: list[Branch] = []
    for run in sorted(_readable(store), key=lambda run: (run.created, run.name)):
        try:
            branch = Branch(run, policies(store, run.name))
        except ArtifactDamagedError:
            continue
        parent = max(branches, key=lambda older: _num_shared(older, branch), default=None)  # the first of equals
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
    """Updates after which both have the same checkpoint, and had it all along."""
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
