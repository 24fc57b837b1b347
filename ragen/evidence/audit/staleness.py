"""Staleness: number of updates between the policy that sampled a turn and the policy that trained on it.

run record, manifests of `turns` -> staleness of every iteration's turns

It is a property of the use of a rollout, not of the rollout: two runs, or two updates of one run (Online-k), may train
on the same turns. It is therefore derived from the store rather than stored as a column.
"""

from starpo.ragen.core.errors import ArtifactMissingError
from starpo.ragen.store import Store


def staleness(store: Store, run: str) -> dict[int, int]:
    """Map each iteration to the updates between the checkpoint that sampled its turns and its update's initial one.

    For an iteration without an update, the second is the checkpoint that an update would have started from. Iterations
    whose turns were not sampled by a checkpoint of this run (as in a replay) are left out.

    Raises:
        StoreError: If there is no such run.
        ArtifactDamagedError: If a manifest is damaged.
    """
    numbers: dict[str, int] = {}
    distances: dict[int, int] = {}
    store.runs.get(run)
    for iteration, stages in store.runs.iterations(run).items():
        first = stages.get("warm_start", {}).get("checkpoint")
        if first is not None:
            numbers[first] = 0
        played_by = _played_by(store, stages.get("rollout", {}).get("turns"))
        if played_by in numbers:
            distances[iteration] = max(numbers.values()) - numbers[played_by]
        update = stages.get("update")
        if update and numbers:
            numbers[next(iter(update.values()))] = max(numbers.values()) + 1  # all artifacts of an update share one key
    return distances


def _played_by(store: Store, turns: str | None) -> str:
    try:
        return store.manifest("turns", turns).inputs.get("checkpoint", "") if turns else ""
    except ArtifactMissingError:  # reported when the turns are read
        return ""
