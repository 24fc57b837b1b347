"""What training did to a checkpoint's success, on its own environment and on others, prompt by prompt.

success by prompt of the first and the last checkpoint of a run -> Transfer, one a panel
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
"""Place -> seeds that were evaluated, and successes by prompt, over them."""


class Transfer(Part):
    """A run on a panel: its last checkpoint beside its first."""

    run: str
    """Whose checkpoints."""
    environment: str
    """Name of the panel."""
    temperature: float
    """Of sampling."""
    first: int
    """Iterations before the first checkpoint."""
    last: int
    """Iterations before the last."""
    difference: Difference | None
    """Success of the last minus that of the first. None: they have no prompt in common."""


def transfers(measured: Measured) -> list[Transfer]:
    """Every run on every panel on which two of its checkpoints were measured."""
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
    """Success of one checkpoint minus that of another: the mean over these panels, whatever their numbers of prompts.

    Args:
        measured: Both of them on all of these panels.
        who: Run, iteration, temperature.
        other: The same of the other.
        environments: Names of the panels.

    Returns:
        None: on one of them they have no prompt in common.
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
