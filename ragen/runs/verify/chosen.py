"""What is verified of a run: recorded stages, each with the work expected in its place of the record.

visits -> chosen iterations and stages
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from starpo.ragen.core.errors import ConfigError
from starpo.ragen.runs.work import Work


@dataclass(frozen=True)
class Visit:
    """A recorded stage of an iteration, with its outputs and its expected work.

    Attributes:
        iteration: Iteration of the run.
        name: Name as recorded, such as `evaluate:sokoban`.
        stage: Name of the stage, such as `evaluate`.
        outputs: Kind -> key, as recorded.
        work: The work implied by the run's settings and the recorded stages before; None if it is unknown.
        is_misplaced: Whether the record names other work than expected in this place.
        excuse: Why the recorded artifacts may differ from recomputed ones, or why the work is unknown; empty if nothing
            excuses a difference.
    """

    iteration: int
    name: str
    stage: str
    outputs: Mapping[str, str]
    work: Work | None = None
    is_misplaced: bool = False
    excuse: str = ""

    @property
    def cell(self) -> str:
        """The evaluated cell, such as `sokoban`: the part of an evaluation's name after the colon."""
        return self.name.partition(":")[2]

    @property
    def inputs(self) -> Mapping[str, str]:
        """Role -> key."""
        return self.work.inputs if self.work else {}


def check_stages(run: str, stages: Sequence[str], recorded: Iterable[str]) -> None:
    """Check that all stages to verify are recorded.

    Args:
        run: Name of the run, for messages.
        stages: Names of stages, such as `evaluate`.
        recorded: Names as recorded, such as `evaluate:sokoban`.

    Raises:
        ConfigError: If one is not.
    """
    known = list(dict.fromkeys(name.partition(":")[0] for name in recorded))
    for stage in stages:
        if stage not in known:
            near = get_close_matches(stage, known, n=1)
            hint = f"; did you mean {near[0]}?" if near else "."
            raise ConfigError(f"run '{run}' has recorded no stage '{stage}'{hint} Recorded: {', '.join(known)}")


def chosen_iterations(
    run: str, iterations: Sequence[int], first: int | None = None, last: int | None = None, share: float = 1.0
) -> frozenset[int]:
    """Choose the iterations to verify.

    Args:
        run: Name of the run, for messages.
        iterations: Recorded iterations, in ascending order.
        first: First iteration; None for the run's first.
        last: Last iteration, included; None for the run's last.
        share: Share of the iterations in the range, evenly spaced; at least one is chosen.

    Raises:
        ConfigError: If nothing is recorded, or no iteration is in the range.
    """
    if not iterations:
        raise ConfigError(f"run '{run}' has recorded no stage yet, so there is nothing to verify")
    low, high = iterations[0] if first is None else first, iterations[-1] if last is None else last
    chosen = [iteration for iteration in iterations if low <= iteration <= high]
    if not chosen:
        raise ConfigError(
            f"--from {low} --to {high} selects no iteration of run '{run}', "
            f"which has {iterations[0]} to {iterations[-1]}"
        )
    count = max(1, round(share * len(chosen)))
    return frozenset(chosen[(2 * index + 1) * len(chosen) // (2 * count)] for index in range(count))
