"""`Sweep`: specification of an evaluation: who is evaluated, on which panels, at which temperatures and seeds."""

import re
from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import Field, field_validator

from starpo.ragen.config.environment import EnvironmentConfig
from starpo.ragen.core.registry import ENGINES
from starpo.ragen.core.settings import Settings
from starpo.ragen.studies.spec import StudySpec, repeated

_CHANGEABLE = ("rollout.engine", "evaluation.")
_EVERY = re.compile(r"every:([1-9][0-9]{0,6})")


def is_changeable(path: str) -> bool:
    """Whether a setting of a run can be changed for the evaluation of its checkpoints."""
    return path.startswith((*_CHANGEABLE, *(f"rollout.{engine}." for engine in ENGINES)))


class SweepPanel(Settings):
    """A panel by its settings, with the limits of who plays it."""

    environment: EnvironmentConfig
    """The environment."""
    max_turns: int = Field(ge=1)
    """Turns of an episode."""
    max_actions: int = Field(ge=1)
    """Actions of an episode."""
    max_actions_per_turn: int = Field(ge=1)
    """Actions of a turn."""
    env_seeds: tuple[Annotated[int, Field(ge=0)], ...] | None = None
    """Seeds of its initial states, such as those of a stored rollout. None: drawn, as each run's evaluation is."""

    @property
    def limits(self) -> dict[str, int]:
        """Its limits, by the names that `AgentConfig` has for them."""
        return self.model_dump(include={"max_turns", "max_actions", "max_actions_per_turn"})


class Sweep(StudySpec):
    """An evaluation: every combination of checkpoints, environments, temperatures and seeds."""

    word = "a sweep"

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")
    """Name of its result."""
    runs: list[str] = Field(default_factory=list)
    """Runs whose checkpoints are evaluated: those of `iterations`, or of `RUN:40` the one after 40 iterations."""
    subjects: dict[str, dict[str, str]] = Field(default_factory=dict)
    """Others by name, such as a model: their runs of no iteration, whose first checkpoint is evaluated, and what the
    panel of the run's environment is called here."""
    panels: dict[str, SweepPanel] = Field(default_factory=dict)
    """Panels on which the runs are evaluated in place of `environments`, by name."""
    overrides: dict[str, Any] = Field(default_factory=dict)
    """Dotted path -> value of settings of the runs to change: of the engine (rollout.engine and the table of its name),
    or of evaluation."""
    iterations: str | list[Annotated[int, Field(ge=0)]] = "last"
    """Which checkpoints; checkpoint n is the one after n iterations. 'last': the newest; 'all'; 'every:10': every
    tenth, and the run's last; 'ends': the first and the newest; or their numbers. Those that a run has not reached yet
    are left to a later sweep."""
    is_matrix: bool = False
    """Generalisation matrix: without `environments`, every run plays the panels of all runs, each with the turn and
    action limits of the run that the panel belongs to."""
    environments: list[str] = Field(default_factory=list)
    """Panels of the runs (the training environment by its type, and the variants) or environments of `starpo envs`.
    Empty: all panels that the runs have in common."""
    temperatures: list[Annotated[float, Field(ge=0.0, le=10.0)]] = Field(default_factory=list)
    """Sampling temperatures. Empty: each run's own."""
    seeds: list[Annotated[int, Field(ge=0, le=1_000_000)]] = Field(default_factory=lambda: [0], min_length=1)
    """Seed n plays every prompt with the n-th batch of members, that is, with different randomness; training's own
    evaluations use 0."""
    num_prompts: int | None = Field(None, ge=1, le=100_000)
    """Number of initial states of a panel. None: each run's own."""
    samples_per_prompt: int | None = Field(None, ge=1, le=1000)
    """Trajectories per initial state and seed. None: each run's own."""

    @field_validator("overrides")
    @classmethod
    def _checkpoints_stay(cls, overrides: dict[str, Any]) -> dict[str, Any]:
        if strangers := [path for path in overrides if not is_changeable(path)]:
            raise ValueError(
                f"override {strangers[0]}: an evaluation uses the settings of the checkpoint's run, except for the "
                "engine (rollout.engine, and the table of its name) and evaluation.*, which can be changed"
            )
        return overrides

    @field_validator("iterations")
    @classmethod
    def _iterations_are_known(cls, value: str | list[int]) -> str | list[int]:
        if value in ("last", "all", "ends") or (isinstance(value, str) and _EVERY.fullmatch(value)):
            return value
        if isinstance(value, list) and value and len(set(value)) == len(value):
            return sorted(value)
        raise ValueError(
            "expected 'last', 'all', 'ends', 'every:10' or different numbers of checkpoints such as [10, 20]; "
            "checkpoint n is the one after n iterations"
        )

    @field_validator("runs", "environments", "temperatures", "seeds")
    @classmethod
    def _each_once(cls, values: list[str | float]) -> list[str | float]:
        if twice := repeated(values):
            raise ValueError(f"{', '.join(map(str, twice))} appears twice; name each once")
        return values

    def chosen(self, numbers: Iterable[int], last: int) -> list[int]:
        """Select among the checkpoints that a run has now.

        Args:
            numbers: Numbers of the checkpoints that it has.
            last: Number of the checkpoint after its last iteration, whether or not it exists yet.

        Returns:
            Numbers in ascending order; empty if none of the requested checkpoints exists yet.
        """
        present = sorted(numbers)
        if self.iterations == "all":
            return present
        if self.iterations == "last":
            return present[-1:]
        if self.iterations == "ends":
            return sorted({*present[:1], *present[-1:]})
        if isinstance(self.iterations, list):
            return [number for number in present if number in self.iterations]
        step = int(self.iterations.removeprefix("every:"))
        return [number for number in present if number % step == 0 or number == last]
