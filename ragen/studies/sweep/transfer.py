"""Effect of training on a run's success, on its own environment and on others, paired by prompt.

success by prompt of the first and the last checkpoint of a run -> Transfer, one per panel
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from starpo.ragen.agents.evaluation.intervals import mean_interval
from starpo.ragen.studies.bootstrap import paired_difference
from starpo.ragen.studies.outcomes import Counts, rates
from starpo.ragen.studies.result import Difference, Part

Place = tuple[str, int, float, str]
"""Run, iteration, temperature, environment."""
Measured = dict[Place, tuple[list[int], Counts]]
"""Place -> seeds that were evaluated, and counts by prompt, summed over them."""


class Transfer(Part):
    """A run on a panel: its last checkpoint compared with its first."""

    run: str
    """Run that the checkpoints belong to."""
    environment: str
    """Name of the panel."""
    temperature: float
    """Sampling temperature."""
    first: int
    """Number of iterations before the first checkpoint."""
    last: int
    """Number of iterations before the last."""
    difference: Difference | None
    """Success of the last minus that of the first; None if they have no prompt in common."""


def transfers(measured: Measured) -> list[Transfer]:
    """Compare a run's first and last checkpoint, for every panel on which two of its checkpoints were measured."""
    checkpoints: dict[tuple[str, float, str], list[int]] = {}
    for (run, iteration, temperature, environment), (_, counts) in measured.items():
        if counts:
            checkpoints.setdefault((run, temperature, environment), []).append(iteration)
    return [
        Transfer(
            run=run,
            environment=environment,
            temperature=temperature,
            first=min(iterations),
            last=max(iterations),
            difference=difference(
                measured, (run, max(iterations), temperature), (run, min(iterations), temperature), [environment]
            ),
        )
        for (run, temperature, environment), iterations in checkpoints.items()
        if len(iterations) > 1
    ]


def difference(
    measured: Mapping[Place, tuple[list[int], Counts]],
    who: tuple[str, int, float],
    other: tuple[str, int, float],
    environments: Sequence[str],
) -> Difference | None:
    """Compute the success of one checkpoint minus that of another, as the unweighted mean over panels.

    Args:
        measured: Counts of both checkpoints on all of these panels.
        who: Run, iteration, temperature.
        other: Run, iteration, temperature of the other checkpoint.
        environments: Names of the panels.

    Returns:
        None if there is a panel on which they have no prompt in common.
    """
    found = []
    for environment in environments:
        ours, others = (rates(measured[(*entrant, environment)][1]) for entrant in (who, other))
        common = [prompt for prompt in ours if prompt in others]
        if not common:
            return None
        found.append(paired_difference(*(np.array([[of[prompt] for prompt in common]]) for of in (ours, others))))
    means = [one.mean for one in found]
    low, high = mean_interval(means, [(one.low, one.high) for one in found], least=-1.0)
    return Difference(mean=math.fsum(means) / len(means), low=low, high=high)
