"""Updates of a run, counted: an iteration whose filter keeps no group makes none, so iterations do not count them."""

from collections.abc import Iterable


def updates_before(stages: Iterable[tuple[int, str]], iteration: float) -> int:
    """Count the updates that a run had made before an iteration.

    Args:
        stages: Iteration and name of every recorded stage.
        iteration: The iteration. A run that begins at a later one (a replay) continues from as many updates.
    """
    known = set(stages)
    begin = min((number for number, _ in known), default=0)
    return begin + sum(name == "update" and number < iteration for number, name in known)
