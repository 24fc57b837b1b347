"""Online-k: one rollout serves k consecutive updates, each on all of it, unless it becomes too off-policy before.

    metrics of each update -> RolloutUse: reuse, or collect anew      records of a run -> reuses -> by_reuse: the report

The report is derived from the store: consecutive iterations with the same `turns` reuse one rollout.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean

from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.evidence.diagnostics.series import stored_metrics
from starpo.ragen.store import Store

KL = "update/validity_after/kl"
EFFECTIVE_SAMPLE_SIZE = "update/validity_after/effective_sample_size_tokens"
_BEFORE = "update/validity_before/"


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
            metrics: Metrics of the update. Only those with a threshold are read.

        Returns:
            The reason, in words, if the next iteration collects a rollout early; else None.
        """
        self.num_updates += 1
        limits = self.config.online_max_kl, self.config.online_min_effective_sample_size
        self.stale = _passed(*limits, metrics)
        is_used_up = self.num_updates >= self.config.online_k
        self._is_over = is_used_up or self.stale is not None
        return None if is_used_up else self.stale

    def served_nothing(self) -> None:
        """Record that the filter kept no group of the rollout: another update would have no data either."""
        self._is_over = True


def _passed(highest: float | None, lowest: float | None, metrics: Mapping[str, float]) -> str | None:
    if highest is not None and metrics[KL] > highest:
        return f"KL to the behaviour policy {metrics[KL]:.4g} is above online_max_kl = {highest:g}"
    if lowest is not None and metrics[EFFECTIVE_SAMPLE_SIZE] < lowest:
        found = metrics[EFFECTIVE_SAMPLE_SIZE]
        return f"effective sample size {found:.4g} is below online_min_effective_sample_size = {lowest:g}"
    return None


@dataclass(frozen=True)
class Reuse:
    """An update as a use of its rollout.

    Attributes:
        iteration: Iteration of the update.
        reuse: Number of updates the rollout had served before; 0 for a fresh rollout.
        is_early: Whether the rollout is fresh and a threshold ended the previous one early.
        values: `clip_fraction` of the update, and the measurements of `learners.validity` before its first step.
    """

    iteration: int
    reuse: int
    is_early: bool
    values: dict[str, float]


def reuses(store: Store, run: str) -> list[Reuse]:
    """Return the updates of a run in order, each with the number of earlier uses of its rollout.

    Raises:
        ConfigError: If the run has no update, or one by a release that did not measure this.
    """
    config = store.runs.get(run).config
    online_k = config.get("online_k", 1)
    limits = config.get("online_max_kl"), config.get("online_min_effective_sample_size")
    found: list[Reuse] = []
    turns, num_updates, is_stale = None, 0, False
    for iteration, stages in store.runs.iterations(run).items():
        if "rollout" not in stages:
            continue
        is_fresh = stages["rollout"]["turns"] != turns
        is_early = is_fresh and is_stale and num_updates < online_k
        turns, num_updates, is_stale = stages["rollout"]["turns"], 0 if is_fresh else num_updates, False
        if "update" in stages:
            metrics = stored_metrics(store, stages["update"]["metrics"])
            found.append(Reuse(iteration, num_updates, is_early, _values(run, metrics)))
            is_stale = _passed(*limits, metrics) is not None
            num_updates += 1
    if not found:
        raise ConfigError(f"run {run} has no update yet, so nothing is known about the use of its rollouts")
    return found


def _values(run: str, metrics: Mapping[str, float]) -> dict[str, float]:
    values = {name.removeprefix(_BEFORE): value for name, value in metrics.items() if name.startswith(_BEFORE)}
    if not values:
        raise ConfigError(
            f"the updates of run {run} did not record how far they were from the behaviour policy: an earlier release "
            "made them. Start the run again under another name; its updates will be the same"
        )
    if "update/clip_fraction" in metrics:  # absent while only the critic learns
        values["clip_fraction"] = metrics["update/clip_fraction"]
    return values


def by_reuse(found: list[Reuse]) -> list[dict[str, float]]:
    """Aggregate by number of earlier uses: `reuse`, `num_updates`, and the mean of every value over the updates."""
    rows = []
    for reuse in sorted({update.reuse for update in found}):
        updates = [update.values for update in found if update.reuse == reuse]
        names = dict.fromkeys(name for values in updates for name in values)
        means = {name: fmean(values[name] for values in updates if name in values) for name in names}
        rows.append({"reuse": reuse, "num_updates": len(updates), **means})
    return rows
