"""`Sweep`: specification of an evaluation sweep."""

import re
from collections.abc import Iterable
from typing import Annotated

from pydantic import Field, field_validator

from starpo.ragen.studies.spec import StudySpec, repeated

_EVERY = re.compile(r"every:([1-9][0-9]{0,6})")


class Sweep(StudySpec):
    """An evaluation sweep: every combination of checkpoints, environments, temperatures and seeds."""

    word = "a sweep"

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")
    """Name of its result."""
    runs: list[str] = Field(default_factory=list)
    """Runs whose checkpoints are evaluated; at least one."""
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
