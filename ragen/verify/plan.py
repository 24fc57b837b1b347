"""What of a run is verified: its recorded stages in the order of the work, each with its inputs.

run record -> visits -> chosen iterations and stages
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from ragen.errors import ConfigError
from ragen.store.runs import Run, StageKeys

INPUTS: dict[str, tuple[str, ...]] = {
    "warm_start": (),
    "evaluate": ("checkpoint",),
    "rollout": ("checkpoint",),
    "reward": ("turns",),
    "variance_filter": ("turns", "rewards"),
    "update": ("checkpoint", "reference", "turns", "rewards", "selection"),
}
"""Stage -> roles of its inputs; stages in the order of an iteration, whose evaluation comes before its update."""


@dataclass(frozen=True)
class Visit:
    """A stage of an iteration, with what it made and what it was made from.

    Attributes:
        iteration: Of the run.
        name: As recorded, such as `evaluate:sokoban`.
        outputs: Kind -> key, as recorded.
        inputs: Role -> key, as the record's other stages imply; a role is absent where they do not.
    """

    iteration: int
    name: str
    outputs: dict[str, str]
    inputs: dict[str, str]

    @property
    def stage(self) -> str:
        """The stage's own name, such as `evaluate`."""
        return self.name.partition(":")[0]

    @property
    def cell(self) -> str:
        """What an evaluation evaluates, such as `sokoban`; empty for other stages."""
        return self.name.partition(":")[2]


def plan_visits(
    run: Run,
    recorded: Mapping[int, StageKeys],
    first: int | None = None,
    last: int | None = None,
    stages: Sequence[str] = (),
    share: float = 1.0,
) -> list[Visit]:
    """Choose what is verified.

    Args:
        run: Whose record it is.
        recorded: From `Runs.iterations`.
        first: First iteration. None: the run's first.
        last: Last iteration, included. None: the run's last.
        stages: Only these. Empty: all.
        share: Share of the iterations in the range, evenly spread; at least one.

    Returns:
        In the order of the work. Work that several iterations recorded (Online-k) is visited where it was done.

    Raises:
        ConfigError: If a stage does not exist, nothing is recorded, or no iteration is in the range.
    """
    for stage in stages:
        if stage not in INPUTS:
            near = get_close_matches(stage, INPUTS, n=1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise ConfigError(f"there is no stage '{stage}'; {hint}Stages: {', '.join(INPUTS)}")
    chosen = _chosen_iterations(run.name, list(recorded), first, last, share)
    return [v for v in _visits(run, recorded) if v.iteration in chosen and (not stages or v.stage in stages)]


def _visits(run: Run, recorded: Mapping[int, StageKeys]) -> Iterator[Visit]:
    known: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    is_ahead = run.config.get("rollout", {}).get("staleness", 0) > 0
    passed: str | None = None  # a rollout beside an update is played by the checkpoint that the update began with
    for iteration, stages in recorded.items():
        player, passed = passed, None
        for name in sorted(stages, key=lambda name: (_rank(name), name)):
            outputs = stages[name]
            visit = Visit(iteration, name, outputs, {})
            # a replay's rollouts were played by the checkpoints of the run that it replays
            if visit.stage != "rollout" or run.flow != "replay":
                visit.inputs.update({role: known[role] for role in INPUTS.get(visit.stage, ()) if role in known})
                if visit.stage == "rollout" and player is not None:
                    visit.inputs["checkpoint"] = player
            work = (visit.stage, next(iter(outputs.values()), ""))
            if work not in seen:
                yield visit
            seen.add(work)
            if visit.stage == "update" and is_ahead:
                passed = known.get("checkpoint")
            if visit.stage in ("warm_start", "update") and outputs:
                known["checkpoint"] = next(iter(outputs.values()))  # all that a stage makes has one key
            elif visit.stage in INPUTS:
                known |= outputs
            if visit.stage == "warm_start":
                known["reference"] = known["checkpoint"]


def _rank(name: str) -> int:
    stage = name.partition(":")[0]
    return list(INPUTS).index(stage) if stage in INPUTS else len(INPUTS)


def _chosen_iterations(
    run: str, iterations: list[int], first: int | None, last: int | None, share: float
) -> frozenset[int]:
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
