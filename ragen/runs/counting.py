"""Updates of a run, counted: an iteration whose filter keeps no group makes none, so iterations do not count them."""

from collections.abc import Iterable, Mapping
from typing import Any


def updates_before(stages: Iterable[tuple[int, str]], iteration: float) -> int:
    """Count the updates that a run had made before an iteration.

    Args:
        stages: Iteration and name of every recorded stage.
        iteration: The iteration. A run that begins at a later one (a replay) continues from as many updates.
    """
    known = set(stages)
    begin = min((number for number, _ in known), default=0)
    return begin + sum(name == "update" and number < iteration for number, name in known)


def updates_by_iteration(iterations: Mapping[int, Mapping[str, Any]]) -> dict[int, int]:
    """Count the updates that a run had made before each of its iterations, in one pass.

    Args:
        iterations: Iteration -> its recorded stages, by name.
    """
    num_updates = min((number for number, stages in iterations.items() if stages), default=0)
    counts: dict[int, int] = {}
    for iteration in sorted(iterations):
        counts[iteration] = num_updates
        num_updates += "update" in iterations[iteration]
    return counts
