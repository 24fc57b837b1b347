"""Base of the adapters: text in, text out, the transcript as the state, and errors for missing packages.

another package's task --`begin`, `take`--> Suite --> Environment
"""

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import Any, ClassVar, TypeVar

from pydantic import Field, JsonValue

from starpo.ragen.core.errors import EnvironmentFault, MissingPackageError, first_line
from starpo.ragen.core.registry import SUITES
from starpo.ragen.core.seeding import python_random
from starpo.ragen.envs.base import Environment, EnvironmentSettings, Info

_TRIAL_STEPS, _TRIALS = 8, 8


class SuiteSettings(EnvironmentSettings):
    """A task of a suite."""

    task: str = Field(min_length=1, max_length=400)
    """Name of the task in the suite."""
    config: dict[str, JsonValue] = Field(default_factory=dict)
    """Further keyword arguments for the suite. Empty: the suite's defaults."""
    about: str = Field("", max_length=10_000)
    """Description of the task in the prompt, before the form of the actions. Empty: the observation is enough."""

    def __hash__(self) -> int:
        return hash(self.model_dump_json())


S = TypeVar("S", bound=SuiteSettings)


@dataclass(frozen=True)
class StepResult:
    """Result of an action.

    Attributes:
        observation: The next observation.
        reward: Reward of the action.
        is_over: Whether the episode has ended.
        is_success: Whether its goal has been reached.
    """

    observation: str
    reward: float = 0.0
    is_over: bool = False
    is_success: bool = False


class Suite(Environment[S]):
    """A task of another package.

    Its state is identified by the initial seed and the transcript, unless an adapter can access the state itself.
    """

    name: ClassVar[str]
    """Name of the suite."""

    def __init__(self, settings: S) -> None:
        super().__init__(settings)
        self._now: StepResult | None = None
        self._transcript: list[str] = []

    @abstractmethod
    def begin(self, seed: int, dynamics_seed: int) -> str:
        """Begin an episode and return the first observation."""

    @abstractmethod
    def take(self, action: str) -> StepResult:
        """Carry out an action in the grammar's canonical spelling."""

    def origin(self, seed: int) -> str:
        """Return the identity of the initial state; by default the seed, as the state is not visible."""
        return f"seed {seed}"

    @cached_property
    def replay_fault(self) -> str:
        """Non-empty if two equally seeded trials of a few random steps fail or differ. Successful trials are cached for
        all environments of the process, a failure for this one."""
        try:
            first, second = (_heard(type(self), self.settings, 0, which) for which in range(2))
        except EnvironmentFault as error:
            return f"it cannot be asked: {first_line(error)}"
        return "" if first == second else "two episodes with the same seeds differ"

    def reset(self, *, seed: int, dynamics_seed: int = 0) -> tuple[str, Info]:
        """See `Environment.reset`."""
        self._now = StepResult(self.begin(seed, dynamics_seed))
        self._transcript = [self.origin(seed)]
        return self.render(), {}

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """See `Environment.step`."""
        if self.now.is_over:
            raise EnvironmentFault(f"{self._place}: the episode has ended; call reset")
        if self.grammar.read(action) != action:
            raise EnvironmentFault(f"{self._place}: {action!r} is not an action. {self.grammar.describe()}")
        before = self.state_digest()
        self._now = now = self.take(action)
        self._transcript += [action, now.observation]
        info = {"effective": self.state_digest() != before, "is_success": now.is_success}
        return self.render(), now.reward, now.is_over, False, info

    @property
    def now(self) -> StepResult:
        """Outcome of the latest action, or of the reset."""
        if self._now is None:
            raise EnvironmentFault(f"{self._place}: there is nothing before the first reset; call reset")
        return self._now

    @property
    def actions(self) -> tuple[str, ...]:
        """Empty: not listed."""
        return ()

    @property
    def is_success(self) -> bool:
        """See `Environment.is_success`."""
        return self._now is not None and self._now.is_success

    def rules(self) -> str:
        """Return the settings' description of the task, or its name."""
        return self.settings.about or f"This is the task {self.settings.task} of {self.name}."

    def state_digest(self) -> str:
        """Return a digest of the initial state and the transcript since."""
        assert self.now
        return values_digest(self._transcript)

    def render(self) -> str:
        """Return the current observation."""
        return self.now.observation

    @property
    def _place(self) -> str:
        return f"{self.name}/{self.settings.task}"


@lru_cache(maxsize=256)
def _heard(kind: type[Suite[Any]], settings: SuiteSettings, dynamics_seed: int, which: int) -> tuple[StepResult, ...]:
    """Play a few random steps in a fresh environment.

    Args:
        kind: The adapter.
        settings: Its settings.
        dynamics_seed: Seed of the randomness in the steps.
        which: Cache key that distinguishes otherwise identical episodes.
    """
    world, rng = kind(settings), python_random("trial of a suite")
    world._now = StepResult(world.begin(0, dynamics_seed))
    outcomes = [world.now]
    while not world.now.is_over and len(outcomes) <= _TRIAL_STEPS:
        world._now = world.take(world.random_action(rng))
        outcomes.append(world.now)
    return tuple(outcomes)


def differs_by_chance(kind: type[Suite[Any]], settings: SuiteSettings) -> bool:
    """Whether a few episodes with the same seed and actions differ between dynamics seeds."""
    return len({_heard(kind, settings, dynamics_seed, 0) for dynamics_seed in range(_TRIALS)}) > 1


def values_digest(values: list[Any]) -> str:
    """Return a digest of a list of values, 16 hexadecimal digits."""
    return blake2b("\0".join(map(str, values)).encode(), digest_size=8).hexdigest()


def missing(suite: str, error: ImportError) -> MissingPackageError:
    """Return the error to raise if a suite's package cannot be imported."""
    return MissingPackageError(
        f"the suite {suite} needs the package {SUITES[suite]}, which cannot be imported here ({error}): "
        f"pip install 'starpo[{suite}]'"
    )
