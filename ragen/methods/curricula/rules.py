"""Shares of the levels: pools by latest success, gates by level.

Only sums, differences, products and quotients, which every processor rounds alike: shares decide what is played next.
"""

from collections.abc import Sequence

from starpo.ragen.learning.levels import Level
from starpo.ragen.methods.curricula.settings import GatesSettings, PoolsSettings


def pools(levels: Sequence[Level], settings: PoolsSettings) -> list[float]:
    """Prefer the levels whose latest success p is near the target t; all keep a floor.

    weight = min(p / t, (1 - p) / (1 - t)), 1 for a level without a group yet
    share  = floor * base + (1 - floor) * base * weight / sum of base * weight

    where `base` is the environment's own share. If all weights are 0 (every level is solved or impossible), shares are
    the environment's own.

    Returns:
        Shares, [levels]; they sum to 1.
    """
    weights = [level.base * _closeness(level.success, settings.target) for level in levels]
    total = sum(weights)
    if total == 0.0:
        return [level.base for level in levels]
    floor = settings.floor
    return [floor * level.base + (1 - floor) * (weight / total) for level, weight in zip(levels, weights, strict=True)]


def _closeness(success: float | None, target: float) -> float:
    return 1.0 if success is None else min(success / target, (1 - success) / (1 - target))


def gates(levels: Sequence[Level], settings: GatesSettings) -> list[float]:
    """Play the open levels by the environment's own shares; the others wait.

    The first level is open. Another opens when the one before it is open, has been played for a whole window, and has a
    success of at least the threshold over it. What is open (has a share) stays open.

    Returns:
        Shares, [levels]; they sum to 1, and are 0 for levels that are not open.
    """
    open_bases: list[float] = []
    is_open = True
    for level in levels:
        is_open = is_open or level.share > 0.0
        open_bases.append(level.base if is_open else 0.0)
        is_open = is_open and len(level.recent) == settings.window and (level.success or 0.0) >= settings.threshold
    total = sum(open_bases)
    return [base / total for base in open_bases]
