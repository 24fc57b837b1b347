"""An entropy bonus that keeps a policy's entropy from falling below a target (Skywork-OR1, 2505.22312).

entropy before the update, level -> coefficient of this update, level of the next
"""

LARGEST_LEVEL = 1.0
"""Levels are kept between 0 and this, as in TRL."""


def steer(level: float, entropy: float, target: float, step: float) -> tuple[float, float]:
    """Return the coefficient of an update's entropy bonus, and the level for the next update.

        coefficient = level if entropy <= target, else 0
        next level  = level + step if entropy < target, level - step if entropy > target, else level

    Args:
        level: Level that the update before left; at the start the configured coefficient.
        entropy: Mean entropy of the policy before the update, nats per token.
        target: Entropy to keep, nats per token.
        step: Change of the level.
    """
    coefficient = level if entropy <= target else 0.0
    moved = level + step * ((entropy < target) - (entropy > target))
    return coefficient, min(max(moved, 0.0), LARGEST_LEVEL)
