"""Online-k: one rollout serves k consecutive updates, each on all of it, unless it becomes too off-policy before.

    metrics of each update -> RolloutUse: reuse, or collect anew

Consecutive iterations with the same `turns` reuse one rollout.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from starpo.ragen.config.starpo import StarPOConfig

KL = "update/validity_after/kl"
EFFECTIVE_SAMPLE_SIZE = "update/validity_after/effective_sample_size_tokens"


@dataclass
class RolloutUse:
    """Counts the updates on the current rollout, and decides when to collect the next.

    Attributes:
        config: `online_k` and the thresholds.
        num_updates: Updates that the current rollout has served.
        num_early: Rollouts collected before their predecessor had served `online_k` updates, because of a threshold.
        stale: Threshold that the latest update crossed, in words; None if it crossed none.
    """

    config: StarPOConfig
    num_updates: int = 0
    num_early: int = 0
    stale: str | None = None
    _is_over: bool = True

    @property
    def watched(self) -> list[str]:
        """Metrics of an update that have a threshold."""
        limits = {KL: self.config.online_max_kl, EFFECTIVE_SAMPLE_SIZE: self.config.online_min_effective_sample_size}
        return [name for name, limit in limits.items() if limit is not None]

    def should_collect(self, iteration: int) -> bool:
        """Whether to collect a new rollout; if so, reset the counters for it.

        True also if the rollout settings change at this iteration: a rollout sampled with other settings would be
        scored as if it had been sampled with the new ones.
        """
        is_changed = iteration > 0 and self.config.at(iteration).rollout != self.config.at(iteration - 1).rollout
        if not (self._is_over or is_changed):
            return False
        self.num_early += self.stale is not None and self.num_updates < self.config.online_k
        self.num_updates, self.stale, self._is_over = 0, None, False
        return True

    def served(self, metrics: Mapping[str, float]) -> str | None:
        """Record an update on the current rollout.

        Args:
            metrics: Metrics of the update. Only those `watched` are read; one that is absent passes no threshold.

        Returns:
            The reason, in words, if the next iteration collects a rollout early; else None.
        """
        self.num_updates += 1
        self.stale = self._passed(metrics)
        is_used_up = self.num_updates >= self.config.online_k
        self._is_over = is_used_up or self.stale is not None
        return None if is_used_up else self.stale

    def served_nothing(self) -> None:
        """Record that the filter kept no group of the rollout: another update would have no data either."""
        self._is_over = True

    def _passed(self, metrics: Mapping[str, float]) -> str | None:
        highest, kl = self.config.online_max_kl, metrics.get(KL)
        if highest is not None and kl is not None and kl > highest:
            return f"KL to the behaviour policy {kl:.4g} is above online_max_kl = {highest:g}"
        lowest, size = self.config.online_min_effective_sample_size, metrics.get(EFFECTIVE_SAMPLE_SIZE)
        if lowest is not None and size is not None and size < lowest:
            return f"effective sample size {size:.4g} is below online_min_effective_sample_size = {lowest:g}"
        return None
