"""What of a run is verified: stages that its record names, each with the work that its place in the record asks for.

visits -> chosen iterations and stages
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from starpo.ragen.core.errors import ConfigError
from starpo.ragen.work import Work

STAGES = (
    "warm_start", "evaluate", "rollout", "probe", "reward", "variance_filter", "diagnose", "gradient_probe", "update",
    "compare",
)  # fmt: skip
"""Those that can be asked for, in the order of the work."""


@dataclass(frozen=True)
class Visit:
    """A stage of an iteration, with what it made and what it had to do.

    Attributes:
        iteration: Of the run.
        name: As recorded, such as `evaluate:sokoban`.
        stage: What it is, such as `evaluate`.
        outputs: Kind -> key, as recorded.
        work: What the run's settings, and the record's stages before, imply. None: nothing tells.
        is_misplaced: Does the record name other work than its place asks for?
        excuse: Why what is recorded may differ from what comes out now; empty: nothing excuses it.
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
        """What an evaluation evaluates, such as `sokoban`; empty for other stages."""
        return self.name.partition(":")[2]

    @property
    def inputs(self) -> Mapping[str, str]:
        """Role -> key."""
        return self.work.inputs if self.work else {}


def check_stages(stages: Sequence[str]) -> None:
    """Go on if all of these are stages.

    Raises:
        ConfigError: If one is not.
    """
    for stage in stages:
        if stage not in STAGES:
            near = get_close_matches(stage, STAGES, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise ConfigError(f"there is no stage '{stage}'; {hint}Stages: {', '.join(STAGES)}")


def chosen_iterations(
    run: str, iterations: Sequence[int], first: int | None = None, last: int | None = None, share: float = 1.0
) -> frozenset[int]:
    """Choose the iterations to look at.

    Args:
        run: The run's name, for messages.
        iterations: Those that it recorded, in ascending order.
        first: First iteration. None: the run's first.
        last: Last iteration, included. None: the run's last.
        share: Share of the iterations in the range, evenly spread; at least one.

    Raises:
        ConfigError: If nothing is recorded, or no iteration is in the range.
    """
    if not iterations:
        raise ConfigError(f"run '{run}' has recorded no stage yet, so there is nothing to verify")
    low, high = iterations[0] if first is None else first, iterations[-1] if last is None else last
    chosen = [iteration for iteration in iterations if low <= iteration <= high]
    if not chosen:
        raise ConfigError(
            f"--from {low} --to {high} leaves no iteration of run '{run}', "
            f"which has {iterations[0]} to {iterations[-1]}"
        )
    count = max(1, round(share * len(chosen)))
    return frozenset(chosen[(2 * index + 1) * len(chosen) // (2 * count)] for index in range(count))
