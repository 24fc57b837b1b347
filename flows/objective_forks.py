"""Whether the lab's ranking of objectives predicts what forks gain: its scores against the success of stored forks.

Lab, stored runs that share a measured checkpoint and continued with an objective's settings -> gains
-> rank correlations
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from starpo.flows.console.listing import evaluation_curve
from starpo.flows.objectives import OWN, Lab
from starpo.ragen.config.load import recorded_config
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import ArtifactDamagedError, ConfigError
from starpo.ragen.store import Store
from starpo.ragen.store.keeping.checkpoints import policies
from starpo.ragen.studies.ranks import RankCorrelation, correlation_over_runs

MIN_PAIRS = 3
"""Minimum number of objectives with a fork; with fewer, a ranking is meaningless."""

_IDLE = {"schedule", "fresh", "iterations", "diagnostics"}
"""Settings that do not affect an iteration's objective."""


@dataclass(frozen=True)
class Gain:
    """Gain of a run that continued from a measured checkpoint with one objective.

    Attributes:
        objective: The objective's name in the lab.
        fork: The run; for the run's own objective, the lab's run itself.
        before: Success at the measured checkpoint, or at the last evaluation before it.
        after: Success at the first evaluation that is late enough.
        updates: Number of updates from the measured checkpoint to that evaluation.
    """

    objective: str
    fork: str
    before: float
    after: float
    updates: int

    @property
    def gain(self) -> float:
        """Increase in success."""
        return self.after - self.before


def fork_gains(store: Store, lab: Lab, iteration: int, updates: int) -> list[Gain]:
    """Collect the gains after a measured iteration, for every objective with which a stored run continued from there.

    A run counts if it has the lab's checkpoint at the iteration, was evaluated at least `updates` updates later, and
    has exactly the objective's settings in between, including those of reward, filter and rollout. If there are
    several, the lab's own run is taken, or else the first by name.

    Args:
        store: Where the runs are stored.
        lab: The measurements.
        iteration: A measured iteration of the lab.
        updates: Minimum number of updates after which success is read.
    """
    checkpoint = policies(store, lab.run)[iteration]
    gains: dict[str, Gain] = {}
    for run in [lab.run, *store.runs.names()]:
        config = _config_of(store, run, iteration, checkpoint)
        if config is None:
            continue
        curve = evaluation_curve(store, store.runs.get(run))
        before = [point["success"] for point in curve if point["iteration"] <= iteration]
        after = [point for point in curve if point["iteration"] >= iteration + updates]
        if before and after:
            later = int(after[0]["iteration"]) - iteration
            settings = [_told(config.at(number)) for number in range(iteration, iteration + later)]
            for name, own in lab.settings[iteration].items():
                if all(_told(own) == now for now in settings):
                    gains.setdefault(name, Gain(name, run, before[-1], after[0]["success"], later))
    return [gains[name] for name in lab.settings[iteration] if name in gains]


def predictions(lab: Lab, iteration: int, gains: list[Gain]) -> dict[str, RankCorrelation]:
    """Compute score of the lab -> its rank correlation with the gains; undefined correlations are omitted."""
    found = lab.found[iteration]
    noise = {name: own.get("signal_to_noise") for name, own in found.values.items()}
    likeness = {name: own.get(OWN) for name, own in found.cosines.items()}
    correlations = {}
    for score, values in {"signal to noise": noise, "cosine with the run's": likeness}.items():
        pairs = [(value, gain.gain) for gain in gains if (value := values[gain.objective]) is not None]
        points = [(np.array([value]), np.array([won])) for value, won in pairs]
        correlation = correlation_over_runs(points)
        if correlation is not None and len(pairs) >= MIN_PAIRS:
            correlations[score] = correlation
    return correlations


def _config_of(store: Store, run: str, iteration: int, checkpoint: str) -> StarPOConfig | None:
    """Return the settings of a run if it has this checkpoint at the iteration; None otherwise, or if unreadable."""
    try:
        record = store.runs.get(run)
        checkpoints = policies(store, run) if record.flow == "starpo" else {}
        if checkpoints.get(iteration) != checkpoint:
            return None
        return recorded_config(run, record.config, "")
    except (ArtifactDamagedError, ConfigError):
        return None


def _told(config: StarPOConfig) -> dict[str, Any]:
    return config.model_dump(mode="json", exclude=_IDLE)
