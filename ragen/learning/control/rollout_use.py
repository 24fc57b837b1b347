"""Online-k: one rollout serves k consecutive updates, each on all of it.

    updates -> RolloutUse: reuse, or collect anew

Consecutive iterations with the same `turns` reuse one rollout.
"""

from dataclasses import dataclass

from starpo.ragen.config.starpo import StarPOConfig


@dataclass
class RolloutUse:
    """Counts the updates on the current rollout, and decides when to collect the next.

    Attributes:
        config: `online_k`, and the settings of rollouts.
        num_updates: Updates that the current rollout has served.
    """

    config: StarPOConfig
    num_updates: int = 0
    _is_over: bool = True

    def should_collect(self, iteration: int) -> bool:
        """Whether to collect a new rollout; if so, reset the counter for it.

        True also if the rollout settings change at this iteration: a rollout sampled with other settings would be
        scored as if it had been sampled with the new ones.
        """
        is_changed = iteration > 0 and self.config.at(iteration).rollout != self.config.at(iteration - 1).rollout
        if not (self._is_over or is_changed):
            return False
        self.num_updates, self._is_over = 0, False
        return True

    def served(self) -> None:
        """Record an update on the current rollout."""
        self.num_updates += 1
        self._is_over = self.num_updates >= self.config.online_k

    def served_nothing(self) -> None:
        """Record that the filter kept no group of the rollout: another update would have no data either."""
        self._is_over = True
