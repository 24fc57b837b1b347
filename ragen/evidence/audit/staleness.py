"""By how many updates was the policy that played a turn behind the one that learned from it?

run record, manifests of `turns` -> staleness of every iteration's turns

It is a fact about a use of a rollout, not about the rollout: two runs, or two updates of one (Online-k), may learn from
the same turns. So it is told from what is stored, and not a column of what is stored.
"""

from starpo.ragen.core.errors import ArtifactMissingError
from starpo.ragen.store import Store


def staleness(store: Store, run: str) -> dict[int, int]:
    """Iteration -> updates between the checkpoint that played its turns and the one that its update began with.

    Of an iteration without an update: the one that it would have begun with. Iterations whose turns were not played by
    a checkpoint of this run (those of a replay) are left out.

    Raises:
        StoreError: If there is no such run.
        ArtifactDamagedError: If a manifest is not what was written.
    """
    numbers: dict[str, int] = {}
    found: dict[int, int] = {}
    store.runs.get(run)
    for iteration, stages in store.runs.iterations(run).items():
        first = stages.get("warm_start", {}).get("checkpoint")
        if first is not None:
            numbers[first] = 0
        played_by = _played_by(store, stages.get("rollout", {}).get("turns"))
        if played_by in numbers:
            found[iteration] = max(numbers.values()) - numbers[played_by]
        update = stages.get("update")
        if update and numbers:
            numbers[next(iter(update.values()))] = max(numbers.values()) + 1  # all that an update makes has one key
    return found


def _played_by(store: Store, turns: str | None) -> str:
    try:
        return store.manifest("turns", turns).inputs.get("checkpoint", "") if turns else ""
    except ArtifactMissingError:  # whoever reads the turns will say so
        return ""
