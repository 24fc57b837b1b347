"""The environment protocol: Gymnasium's conventions with text observations and text actions.

An environment owns its random generators (never global ones), separates the *initial state* (shared by a group)
from the *dynamics* (separate for each member), and never judges an agent's text: `ragen.agents.prompting` parses it,
`ragen.learning.reward` applies penalties. The agent loop enforces turn and action limits; an environment reports only
its own terminal states.
"""

import copy
import random
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np

from starpo.ragen.core.errors import EnvironmentFault
from starpo.ragen.core.settings import Settings
from starpo.ragen.envs.grammar import Grammar, Names

Info = dict[str, Any]
"""JSON-serialisable facts about a step. Every step reports `effective`: whether the action changed the state."""

MAX_OBSERVATION = 1_000_000
"""Maximum characters of an observation: far more than any context holds, and small enough to store for every turn."""


class EnvironmentSettings(Settings):
    """Base class of environment settings."""

    type: str
    """Name of the environment, or `module:attribute` of its class."""

    def tagged(self) -> "Mapping[str, EnvironmentSettings]":
        """Return the playable settings by tag (column `env`): the parts of a mixture, otherwise `{type: self}`."""
        return {self.type: self}

    def tag_of(self, seed: int) -> str:
        """Return the tag of the part that an initial-state seed plays."""
        return self.type

    files: ClassVar[Mapping[str, str]] = {}
    """Field that names a file or a data set -> field of the digest of its content."""

    def assign_parts(self, number: int) -> list[str]:
        """Return the tags of the first groups of a rollout, or of the first prompts of a panel; [number]."""
        return [self.type] * number

    def panel_seeds(self, num_prompts: int, panel_seed: int) -> list[int] | None:
        """Return the seeds of an evaluation panel, all of different states, where these are listed in a file; None if
        they are drawn at random."""
        return None


S = TypeVar("S", bound=EnvironmentSettings)


class Environment(ABC, Generic[S]):
    """A text environment that plays one episode at a time.

    Class attributes:
        settings_type: Model of this environment's settings.
        action_cost: Reward of the least rewarding ordinary action (<= 0). A malformed response forfeits actions at
            this price, so that not acting never pays better than acting and failing. In a mixture, that of the
            episode's part.
        num_initial_states: Upper bound on the number of distinct initial states, if they are so few that training and
            evaluation must share them. None: practically unbounded.
        demonstrator: `module:attribute` of a function `(environment, skill, rng) -> Demonstration` that makes one
            mediocre decision. The embedded policy begins by imitating it; a pretrained policy needs none.
        lessons: `module:attribute` of a function `settings -> tuple of settings` to demonstrate in turn; "": only
            the settings themselves.
        words: Texts to add to the vocabulary of the embedded policy because they are rare in sampled play.
        plays: `module:function` that plays its episodes in place of `ragen.agents.rollout.loop.play`, with the same
            arguments, where turns are not actions of the agent alone; "": the built-in loop.
        report_settings: Overrides of settings that affect only how a state is written, set to values that the report
            can draw.
    """

    settings_type: ClassVar[type[EnvironmentSettings]]
    action_cost: ClassVar[float] = 0.0
    num_initial_states: ClassVar[int | None] = None
    demonstrator: ClassVar[str] = ""
    lessons: ClassVar[str] = ""
    words: ClassVar[tuple[str, ...]] = ()
    plays: ClassVar[str] = ""
    report_settings: ClassVar[Mapping[str, Any]] = {}

    may_ask: bool = False
    """Whether a step may ask a server, such as a judge: true in rollouts and evaluations. Elsewhere (demonstrations,
    trials, drawing) a step does without, and costs nothing."""

    def __init__(self, settings: S) -> None:
        self.settings = settings

    @classmethod
    def remarks(cls, infos: Sequence[str]) -> list[str]:
        """Return what to tell people of a rollout, a sentence each.

        Args:
            infos: Column `info` of the last turns of its trajectories. [num_trajectories]
        """
        return []

    @classmethod
    def incidents(cls, settings: EnvironmentSettings, episodes: Sequence[tuple[str, int, str]]) -> list[str]:
        """Return what to tell people of single episodes of a trial, a line each; of an episode are given its
        trajectory_id, its env_seed, and the column `info` of its last turn."""
        return []

    @abstractmethod
    def reset(self, *, seed: int, dynamics_seed: int = 0) -> tuple[str, Info]:
        """Begin an episode.

        Args:
            seed: Determines the initial state, and nothing else.
            dynamics_seed: Determines the randomness in `step`, and nothing else.

        Returns:
            First observation and its info.
        """

    @abstractmethod
    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Take one action, in the grammar's canonical spelling. A valid action that is illegal in the state is a no-op.

        Returns:
            observation, reward, terminated, truncated (always False: the agent loop enforces limits), info.

        Raises:
            EnvironmentFault: If the grammar rejects the action, or the episode has ended.
        """

    def reseed(self, dynamics_seed: int) -> None:
        """Reseed the randomness of all further steps; the state does not change. A stochastic environment that supports
        search (`rollout.search`) overrides this.

        Raises:
            EnvironmentFault: If the environment is stochastic and does not override this method.
        """
        if self.has_chance:
            raise EnvironmentFault(
                f"{self.settings.type}: has_chance is True and {type(self).__name__} has no reseed(dynamics_seed), so "
                "nothing can be tried on copies of it; define the method, or leave rollout.search out"
            )

    def clone(self, dynamics_seed: int) -> Self:
        """Return an independent copy in the same state, whose further randomness comes from this seed.

        Raises:
            EnvironmentFault: See `reseed`.
        """
        # Settings are frozen, and the state of a generator is thousands of numbers, which `deepcopy` would copy one by
        # one.
        shared: dict[int, Any] = {id(self.settings): self.settings}
        shared |= {id(value): copy.copy(value) for value in vars(self).values() if isinstance(value, random.Random)}
        clone = copy.deepcopy(self, shared)
        clone.reseed(dynamics_seed)
        return clone

    @property
    @abstractmethod
    def actions(self) -> tuple[str, ...]:
        """Names of the actions of the current episode; with a grammar other than `Names`, the actions admissible in
        the current state, or empty if they cannot be listed."""

    @property
    def grammar(self) -> Grammar:
        """Grammar of the actions, constant within an episode; by default, one of `actions`."""
        return Names(self.actions)

    def random_action(self, rng: random.Random) -> str:
        """Return a random valid action, for the checker; override where `actions` does not list the actions."""
        return rng.choice(self.actions)

    @property
    def has_chance(self) -> bool:
        """Whether the same actions from the same state can have different outcomes, depending on `dynamics_seed`."""
        return False

    @property
    def max_concurrent_steps(self) -> int:
        """How many episodes of a shard may take their steps at the same time, each in a thread: more than 1 where a
        step waits for a server."""
        return 1

    @property
    def replay_fault(self) -> str:
        """Short reason why the same seeds and actions may not reproduce an episode; "" if they do.

        Episodes of an environment with a fault are marked as such and are not verified. Its groups and panels are
        identified by their seeds: after `reset`, `state_digest` must depend on the seed alone, and `rules` on the
        settings alone.
        """
        return ""

    @property
    def is_replayable(self) -> bool:
        """Whether the same seeds and actions give the same episode, in any process."""
        return not self.replay_fault

    @property
    @abstractmethod
    def is_success(self) -> bool:
        """Whether the goal of the task has been reached in this episode."""

    @abstractmethod
    def rules(self) -> str:
        """Return the task description for the prompt: goal, rules, meaning of the symbols (several lines)."""

    def picture_rules(self) -> str:
        """Return the task description for a prompt that shows pictures alone: as `rules`, on `render_rgb`."""
        return self.rules()

    @abstractmethod
    def state_digest(self) -> str:
        """Return 16 hexadecimal digits, equal for equal states (of this type and these settings) in any process."""

    @abstractmethod
    def render(self) -> str:
        """Return the current observation as text."""

    def render_rgb(self) -> np.ndarray:
        """Return the current state as an image, uint8 [height, width, 3].

        Raises:
            EnvironmentFault: If the environment draws none.
        """
        raise EnvironmentFault(f"{self.settings.type} draws no pictures: {type(self).__name__} has no render_rgb")
