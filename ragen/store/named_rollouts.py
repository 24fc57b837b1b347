"""Rollouts named by run and iteration, such as `RUN:10-40`, resolved to artifact keys.

["RUN:10-40", "OTHER:0"] -> turns, rewards, selection, turns:1, rewards:1, selection:1, ... -> keys
"""

from collections.abc import Sequence

from starpo.ragen.core.errors import StoreError
from starpo.ragen.store.attempts import MADE_BY, attempts, numbered
from starpo.ragen.store.records.seals import StageKeys
from starpo.ragen.store.store import Store


def named_rollouts(store: Store, names: Sequence[str]) -> dict[str, str]:
    """Return role -> key of the data of all named iterations, each rollout once, numbered like attempts.

    Of an import without rewards, the turns alone.

    Args:
        store: Store that has the runs.
        names: Runs with an iteration or a range, both ends included: `RUN:0`, `RUN:10-40`.

    Raises:
        StoreError: If there is no such run, or it has not recorded an iteration with its rewards and its selection.
    """
    rollouts: dict[str, StageKeys] = {}
    for name in names:
        run, _, span = name.rpartition(":")
        first, _, last = span.partition("-")
        unpaid = store.runs.get(run).parameters.get("unpaid", ())
        recorded = store.runs.iterations(run)
        for iteration in range(int(first), int(last or first) + 1):
            made = {"rollout"} if iteration in unpaid else MADE_BY.keys()
            complete_attempts = [one for one in attempts(recorded.get(iteration, {})) if one.keys() >= made]
            if not complete_attempts:
                raise StoreError(
                    f"'{name}': run '{run}' has no rollout with rewards and a selection in iteration {iteration}; it "
                    f"has recorded {_span(sorted(recorded))}. Name iterations that it has completed"
                )
            rollouts |= {stages["rollout"]["turns"]: stages for stages in complete_attempts}
    return {
        numbered(kind, number): stages[stage][kind]
        for number, stages in enumerate(rollouts.values())
        for stage, kind in MADE_BY.items()
        if stage in stages
    }


def _span(iterations: Sequence[int]) -> str:
    return f"iterations {iterations[0]} to {iterations[-1]}" if iterations else "none"
