"""What the adapters have in common: text in, text out, a state that is what has been said, and a missing package told.

another package's task --`begin`, `take`--> Suite --> Environment
"""

from abc import abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Any, ClassVar, TypeVar

import numpy as np
from pydantic import Field, JsonValue

from starpo.ragen.core.errors import EnvironmentFault, MissingPackageError, first_line
from starpo.ragen.core.registry import SUITES
from starpo.ragen.core.seeding import python_random
from starpo.ragen.envs.base import Environment, EnvironmentSettings, Info
from starpo.ragen.envs.lettering import letter

_PAPER, _INK = (250, 249, 246), (40, 44, 52)
_SCALE, _MARGIN, _COLUMNS, _LINES = 2, 16, 60, 24
_LINE_HEIGHT = 10 * _SCALE
_TRIAL_STEPS, _TRIALS = 8, 8


class SuiteSettings(EnvironmentSettings):
    """Which task of a suite."""

    task: str = Field(min_length=1, max_length=400)
    """Its name in the suite."""
    config: dict[str, JsonValue] = Field(default_factory=dict)
    """What the suite is told beside the task's name, by keyword. Empty: its own defaults."""
    about: str = Field("", max_length=10_000)
    """What the prompt tells of the task, before the form of the actions. Empty: what the observation says is enough."""

    def __hash__(self) -> int:
        return hash(self.model_dump_json())


S = TypeVar("S", bound=SuiteSettings)


@dataclass(frozen=True)
class Outcome:
    """What an action led to.

    Attributes:
        observation: What is seen then.
        reward: What the action paid.
        is_over: Has the episode ended?
        is_success: Has its goal been reached?
    """

    observation: str
    reward: float = 0.0
    is_over: bool = False
    is_success: bool = False


class Suite(Environment[S]):
    """A task of another package.

    Its state is known by the seed of its beginning and all that was said since, unless an adapter sees the state.
    """

    name: ClassVar[str]
    """Of the suite."""

    def __init__(self, settings: S) -> None:
        super().__init__(settings)
        self._now: Outcome | None = None
        self._said: list[str] = []

    @abstractmethod
    def begin(self, seed: int, dynamics_seed: int) -> str:
        """Begin an episode; gives the first observation."""

    @abstractmethod
    def take(self, action: str) -> Outcome:
        """Carry out an action that the grammar has read."""

    def origin(self, seed: int) -> str:
        """What tells initial states apart; the seed, where they cannot be seen."""
        return f"seed {seed}"

    @property
    def replay_fault(self) -> str:
        """Do two episodes with the same seeds differ? Tried once a process, in a few steps of random play."""
        try:
            first, second = (_heard(type(self), self.settings, 0, which) for which in range(2))
        except EnvironmentFault as error:
            return f"it cannot be asked: {first_line(error)}"
        return "" if first == second else "two episodes with the same seeds differ"

    def reset(self, *, seed: int, dynamics_seed: int = 0) -> tuple[str, Info]:
        """See `Environment.reset`."""
        self._now = Outcome(self.begin(seed, dynamics_seed))
        self._said = [self.origin(seed)]
        return self.render(), {}

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """See `Environment.step`."""
        if self.now.is_over:
            raise EnvironmentFault(f"{self._place}: the episode has ended; call reset")
        if self.grammar.read(action) != action:
            raise EnvironmentFault(f"{self._place}: {action!r} is no action. {self.grammar.told()}")
        before = self.state_digest()
        self._now = now = self.take(action)
        self._said += [action, now.observation]
        info = {"effective": self.state_digest() != before, "is_success": now.is_success}
        return self.render(), now.reward, now.is_over, False, info

    @property
    def now(self) -> Outcome:
        """How things stand."""
        if self._now is None:
            raise EnvironmentFault(f"{self._place}: there is nothing before the first reset; call reset")
        return self._now

    @property
    def actions(self) -> tuple[str, ...]:
        """None are listed."""
        return ()

    @property
    def is_success(self) -> bool:
        """See `Environment.is_success`."""
        return self._now is not None and self._now.is_success

    def rules(self) -> str:
        """What the settings tell of the task, or its name."""
        return self.settings.about or f"This is the task {self.settings.task} of {self.name}."

    def state_digest(self) -> str:
        """Of the beginning, and of all that was said since."""
        assert self.now
        return digest_of(self._said)

    def render(self) -> str:
        """The present observation."""
        return self.now.observation

    def render_rgb(self) -> np.ndarray:
        """The observation as text on paper: 60 characters a line, 24 lines at most."""
        lines = [
            line[at : at + _COLUMNS] for line in self.render().splitlines() for at in range(0, len(line), _COLUMNS)
        ]
        lines = lines[:_LINES] or [" "]
        width = 6 * _SCALE * max(map(len, lines)) + 2 * _MARGIN
        picture = np.full((_LINE_HEIGHT * len(lines) + 2 * _MARGIN, width, 3), _PAPER, np.uint8)
        picture[[0, -1]] = picture[:, [0, -1]] = _INK
        for number, line in enumerate(lines):
            ink = letter(line, _SCALE)
            top = _MARGIN + number * _LINE_HEIGHT
            picture[top : top + ink.shape[0], _MARGIN : _MARGIN + ink.shape[1]][ink] = _INK
        return picture

    @property
    def _place(self) -> str:
        return f"{self.name}/{self.settings.task}"


@lru_cache(maxsize=256)
def _heard(kind: type[Suite[Any]], settings: SuiteSettings, dynamics_seed: int, which: int) -> tuple[Outcome, ...]:
    """A few steps of random play in an environment of its own.

    Args:
        kind: The adapter.
        settings: Its settings.
        dynamics_seed: Of the chance in the steps.
        which: Tells apart episodes that are the same but for it.
    """
    world, rng = kind(settings), python_random("trial of a suite")
    world._now = Outcome(world.begin(0, dynamics_seed))
    outcomes = [world.now]
    while not world.now.is_over and len(outcomes) <= _TRIAL_STEPS:
        world._now = world.take(world.random_action(rng))
        outcomes.append(world.now)
    return tuple(outcomes)


def differs_by_chance(kind: type[Suite[Any]], settings: SuiteSettings) -> bool:
    """Do a few episodes of the same seed and actions differ by the seed of their chance?"""
    return len({_heard(kind, settings, dynamics_seed, 0) for dynamics_seed in range(_TRIALS)}) > 1


def digest_of(parts: list[Any]) -> str:
    """16 hexadecimal digits of some values, in order."""
    return blake2b("\0".join(map(str, parts)).encode(), digest_size=8).hexdigest()


def missing(suite: str, error: ImportError) -> MissingPackageError:
    """The error to raise where a suite's package cannot be imported."""
    return MissingPackageError(
        f"the suite {suite} needs the package {SUITES[suite]}, which cannot be imported here ({error}): "
        f"pip install 'starpo[{suite}]'"
    )
