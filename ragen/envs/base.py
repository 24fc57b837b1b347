"""The environment protocol: Gymnasium's conventions with text observations and actions in words.

An environment owns its random generators (never global ones), separates the *initial state* (shared by a group)
from the *dynamics* (each member's own), and never judges an agent's text: parsing is `ragen.agents.prompting`'s work,
penalties are `ragen.learning.reward`'s. Turn and action limits belong to the agent loop; an environment reports only
its own ends.
"""

import copy
import random
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np

from starpo.ragen.core.errors import EnvironmentFault
from starpo.ragen.core.settings import Settings
from starpo.ragen.envs.grammar import Grammar, Names

Info = dict[str, Any]
"""JSON-serialisable facts about a step. Every step reports `effective`: did the action change the state?"""


class EnvironmentSettings(Settings):
    """Base of the settings of an environment."""

    type: str
    """Name of the environment, or `module:attribute` of its class."""

    def tagged(self) -> "Mapping[str, EnvironmentSettings]":
        """What may be played, by the tags that the column `env` has: of a mixture its parts, else this, by its type."""
        return {self.type: self}

    def tag_of(self, seed: int) -> str:
        """The tag of what is played from this seed of an initial state."""
        return self.type

    def dealt(self, number: int) -> list[str]:
        """The tags of the first groups of a rollout, or of the first prompts of a panel; [number]."""
        return [self.type] * number


S = TypeVar("S", bound=EnvironmentSettings)


class Environment(ABC, Generic[S]):
    """One episode at a time of a text environment.

    Class attributes:
        settings_type: The model of this environment's settings.
        action_cost: The reward of the least rewarding ordinary action (<= 0). A malformed response forfeits actions
            at this price, so that not acting never pays better than acting and failing.
        num_initial_states: At most how many different initial states there are, where they are so few that training
            and evaluation must share them. None: practically unbounded.
        demonstrator: `module:attribute` of a function `(environment, skill, rng) -> Demonstration`, one mediocre
            decision. The embedded policy begins by imitating it; a pretrained policy needs none.
        lessons: `module:attribute` of a function `settings -> tuple of settings` to be demonstrated in turn; "": the
            settings themselves are.
        claims: `module:attribute` of a function `(observation, reasoning) -> list of Claim`, for the audit `reasoning`.
        spoken: Of a built-in environment, settings (what differs from the defaults) whose words are tokens of every
            embedded policy. Where it is empty, they are tokens of those embedded policies that play it.
        words: Texts to be made tokens beside what is said in play, since they are rare there.
        drawn_as: Settings that change how a state is written and nothing else, set to what the report can draw.
    """

    settings_type: ClassVar[type[EnvironmentSettings]]
    action_cost: ClassVar[float] = 0.0
    num_initial_states: ClassVar[int | None] = None
    demonstrator: ClassVar[str] = ""
    lessons: ClassVar[str] = ""
    claims: ClassVar[str] = ""
    spoken: ClassVar[tuple[Mapping[str, Any], ...]] = ()
    words: ClassVar[tuple[str, ...]] = ()
    drawn_as: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, settings: S) -> None:
        self.settings = settings

    @abstractmethod
    def reset(self, *, seed: int, dynamics_seed: int = 0) -> tuple[str, Info]:
        """Begin an episode.

        Args:
            seed: Determines the initial state, and nothing else.
            dynamics_seed: Determines the chance in `step`, and nothing else.

        Returns:
            The first observation and its info.
        """

    @abstractmethod
    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Take one action, as `grammar` spells it. One that it allows and the state does not changes nothing.

        Returns:
            observation, reward, terminated, truncated (always False: limits are the agent loop's), info.

        Raises:
            EnvironmentFault: If the grammar does not know the action, or the episode has ended.
        """

    def reseed(self, dynamics_seed: int) -> None:
        """Draw the chance of all further steps from this seed; the state stays. An environment with chance that can be
        searched (`rollout.search`) overrides this.

        Raises:
            EnvironmentFault: If the environment has chance and does not override it.
        """
        if self.has_chance:
            raise EnvironmentFault(
                f"{self.settings.type}: has_chance is True and {type(self).__name__} has no reseed(dynamics_seed), so "
                "nothing can be tried on copies of it; define the method, or leave rollout.search out"
            )

    def clone(self, dynamics_seed: int) -> Self:
        """A copy in the same state, whose further chance comes from this seed; neither changes the other.

        Raises:
            EnvironmentFault: See `reseed`.
        """
        twin = copy.deepcopy(self)
        twin.reseed(dynamics_seed)
        return twin

    @property
    @abstractmethod
    def actions(self) -> tuple[str, ...]:
        """Names of the actions that may be taken in the present episode; with another grammar, the actions that are
        admissible in the present state, where they can be listed, and nothing otherwise."""

    @property
    def grammar(self) -> Grammar:
        """What an action may be, the same throughout an episode: one of `actions`, unless overridden."""
        return Names(self.actions)

    def random_action(self, rng: random.Random) -> str:
        """Some action that may be taken now, for the checker; overridden where `actions` does not list them."""
        return rng.choice(self.actions)

    @property
    def has_chance(self) -> bool:
        """Can the same actions from the same state end differently, by `dynamics_seed`?"""
        return False

    @property
    def replay_fault(self) -> str:
        """Why the same seeds and actions need not give the same episode again, in a few words; "": they do.

        What such an environment has played is marked, and no verification claims it. Its groups and panels are known by
        their seeds: `state_digest` must be of the seed alone after `reset`, and `rules` of the settings.
        """
        return ""

    @property
    def is_replayable(self) -> bool:
        """Do the same seeds and actions give the same episode, in any process?"""
        return not self.replay_fault

    @property
    @abstractmethod
    def is_success(self) -> bool:
        """Has the goal of the task been reached in this episode?"""

    @abstractmethod
    def rules(self) -> str:
        """What the prompt tells about the task: goal, rules, meaning of the symbols (several lines)."""

    @abstractmethod
    def state_digest(self) -> str:
        """16 hexadecimal digits that are equal for equal states (of this type and these settings), in any process."""

    @abstractmethod
    def render(self) -> str:
        """The present observation as text."""

    @abstractmethod
    def render_rgb(self) -> np.ndarray:
        """The present state as a picture, uint8 [height, width, 3]."""
