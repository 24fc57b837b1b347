"""Did the lab's order tell what forks gained? Its scores beside the success of stored forks.

Lab, stored runs that share a measured checkpoint and went on with an objective's settings -> gains -> rank correlations
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
"""Objectives with a fork; with fewer, an order says nothing."""

_IDLE = {"schedule", "fresh", "iterations", "diagnostics"}
"""Settings that do not say which objective an iteration had."""


@dataclass(frozen=True)
class Gain:
    """What a run gained that went on from a measured checkpoint with an objective.

    Attributes:
        objective: Its name in the lab.
        fork: The run; the lab's own for its own objective.
        before: Success at the measured checkpoint, or the last evaluation before it.
        after: At the first evaluation that is late enough.
        updates: From the measured checkpoint to there.
    """

    objective: str
    fork: str
    before: float
    after: float
    updates: int

    @property
    def gain(self) -> float:
        """Success won."""
        return self.after - self.before


def fork_gains(store: Store, lab: Lab, iteration: int, updates: int) -> list[Gain]:
    """What was gained after a measured iteration, by every objective with which a stored run went on from there.

    A run counts if it has the lab's checkpoint at the iteration, was evaluated at least so many updates later, and has
    exactly the objective's settings from the one to the other, those of reward, filter and rollout included. Of several
    the first by name.

    Args:
        store: Where the runs are.
        lab: What was measured.
        iteration: One of its.
        updates: After how many success is read, at least.
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
    """Score of the lab -> its rank correlation with the gains; where there is none it is absent."""
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
    """Settings of a run that has this checkpoint at an iteration; None: it has not, or cannot be read."""
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
