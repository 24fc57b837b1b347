"""Registered environments of Gymnasium with Discrete or Text actions; a template formats the observations as text.

Gymnasium draws the initial state and all later randomness from one generator. Here the seed determines only the initial
state: after the reset, the generator is replaced by one seeded for the group member.
"""

import copy
import random
import re
from collections.abc import Iterable
from string import Formatter
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field, field_validator, model_validator

from starpo.ragen.core.errors import ConfigError
from starpo.ragen.core.seeding import derive_seed
from starpo.ragen.envs.grammar import FreeText, Grammar, Names
from starpo.ragen.envs.suites.suite import StepResult, Suite, SuiteSettings, differs_by_chance, missing, values_digest

_HIGHLIGHTED = re.compile(r"\x1b\[\d+(?:;\d+)*m(.*?)\x1b\[0m", re.DOTALL)
_FIELDS = re.compile(r"values|ansi|\d+")


class GymnasiumSettings(SuiteSettings):
    """The task and its representation as text."""

    type: Literal["gymnasium"] = "gymnasium"
    task: str = Field("FrozenLake-v1", min_length=1, max_length=400)
    """Environment id, such as `FrozenLake-v1`; `config` holds the keyword arguments of `gymnasium.make`."""
    actions: list[str] = Field(default_factory=list)
    """Names of the actions 0, 1, 2, ... Empty: their numbers."""
    template: str = Field("State: {values}", min_length=1, max_length=10_000)
    """Format of the observation: `{values}` stands for all its values, `{0}`, `{1}`, ... for one each (decoded if the
    environment has `decode`), `{ansi}` for the text rendering, with highlights in brackets."""
    success_above: float = 0.0
    """An episode whose final reward exceeds this is a success."""
    action_cost: float = Field(0.0, le=0.0)
    """Reward of the least rewarding ordinary action; a malformed response pays it (`forfeit`)."""
    has_chance: bool | None = None
    """Whether the steps are stochastic. None: according to the transition table, or a trial if there is none."""
    num_initial_states: int | None = Field(None, ge=1)
    """Upper bound on the number of initial states, if they are so few that training and evaluation must share them.
    None: derived from the initial-state distribution; practically unbounded if there is none."""

    @field_validator("template")
    @classmethod
    def _can_be_filled(cls, template: str) -> str:
        parsed = [part for part in Formatter().parse(template) if part[1] is not None]
        for _, name, form, conversion in parsed:
            if form or conversion:
                raise ValueError(
                    f"{{{name}}} is filled in as text and takes no format such as ':.2f': write {{{name}}} alone"
                )
        fields = [name for _, name, *_ in parsed if name is not None]
        strange = [name for name in fields if not _FIELDS.fullmatch(name)]
        if strange:
            raise ValueError(
                f"{{{strange[0]}}} is not a field of a template; fields: {{values}}, {{ansi}}, {{0}}, {{1}} ..."
            )
        return template

    @model_validator(mode="after")
    def _names_differ(self) -> "GymnasiumSettings":
        if len(set(map(str.casefold, self.actions))) < len(self.actions):
            raise ValueError(f"actions must all differ whatever their case, found {', '.join(self.actions)}")
        return self


class GymnasiumTask(Suite[GymnasiumSettings]):
    """Gymnasium environment without its step limit: the agent loop enforces limits."""

    settings_type = GymnasiumSettings
    name: ClassVar[str] = "gymnasium"

    def __init__(self, settings: GymnasiumSettings) -> None:
        super().__init__(settings)
        self._world = _world_of(settings)
        self._observation: Any = None
        self._names = _names(settings, self._world.action_space)
        start = getattr(self._world.unwrapped, "initial_state_distrib", None)
        known = settings.num_initial_states
        few = int(np.count_nonzero(start)) if known is None and start is not None else known
        self.num_initial_states = few  # type: ignore[misc]
        self.action_cost = settings.action_cost  # type: ignore[misc]

    @property
    def has_chance(self) -> bool:
        """From the settings, the transition table or a trial, in this order."""
        if self.settings.has_chance is not None:
            return self.settings.has_chance
        table = getattr(self._world.unwrapped, "P", None)
        if table is None:
            return differs_by_chance(type(self), self.settings)
        return any(len(ends) > 1 for acts in table.values() for ends in acts.values())

    @property
    def replay_fault(self) -> str:
        """From the registration (`nondeterministic`), or else a trial."""
        if self._world.spec.nondeterministic:
            return "its registration says that it is not deterministic"
        return super().replay_fault

    @property
    def grammar(self) -> Grammar:
        """`Names` for a Discrete space, `FreeText` for a Text space."""
        if self._names:
            return Names(self._names)
        return FreeText("Your action is a text.", self._world.action_space.max_length)

    @property
    def actions(self) -> tuple[str, ...]:
        """Action names of a Discrete space; empty for a Text space."""
        return self._names

    def begin(self, seed: int, dynamics_seed: int) -> str:
        """See `Suite.begin`."""
        self._observation, _ = self._world.reset(seed=seed)
        self.reseed(dynamics_seed)
        return self._text()

    def reseed(self, dynamics_seed: int) -> None:
        """See `Environment.reseed`."""
        self._world.unwrapped.np_random = np.random.default_rng(derive_seed(dynamics_seed, "gymnasium"))

    def take(self, action: str) -> StepResult:
        """See `Suite.take`."""
        space = self._world.action_space
        given = int(space.start) + self._names.index(action) if self._names else action
        if not self._names and not space.contains(action):
            return StepResult(self._text())
        self._observation, reward, terminated, truncated, _ = self._world.step(given)
        is_over = bool(terminated or truncated)
        return StepResult(self._text(), float(reward), is_over, is_over and float(reward) > self.settings.success_above)

    def random_action(self, rng: random.Random) -> str:
        """Return a name, or a text of the space's characters."""
        if self._names:
            return rng.choice(self._names)
        space = self._world.action_space
        characters = [character for character in space.character_list if self.grammar.read(character)]
        length = rng.randint(max(1, space.min_length), space.max_length)
        return "".join(rng.choice(characters) for _ in range(length))

    def rules(self) -> str:
        """Return the settings' description of the task, and the action names."""
        return f"{super().rules()}\nActions: {', '.join(self._names)}" if self._names else super().rules()

    def state_digest(self) -> str:
        """Return a digest of the state if exposed, the observation, and whether the episode is over; of the whole
        transcript if the environment cannot be replayed."""
        state = getattr(self._world.unwrapped, "s", None)
        over = self.now.is_over
        if self.replay_fault:
            return super().state_digest()
        return values_digest([state if isinstance(state, int | np.integer) else "", *_leaves(self._observation), over])

    def clone(self, dynamics_seed: int) -> "GymnasiumTask":
        """See `Environment.clone`."""
        clone = copy.copy(self)
        table = getattr(self._world.unwrapped, "P", None)  # large and immutable: shared
        clone._world, clone._transcript = copy.deepcopy(self._world, {id(table): table}), list(self._transcript)
        clone.reseed(dynamics_seed)
        return clone

    def _text(self) -> str:
        decode = getattr(self._world.unwrapped, "decode", None)
        is_number = isinstance(self._observation, int | np.integer)
        observation = decode(self._observation) if decode is not None and is_number else self._observation
        values = [_written(leaf) for leaf in _leaves(observation)]
        drawn = self._world.render() if "{ansi}" in self.settings.template else ""
        drawn = _HIGHLIGHTED.sub(r"[\1]", drawn or "").strip("\n")
        try:
            return self.settings.template.format(*values, values=" ".join(values), ansi=drawn)
        except IndexError as error:
            raise ConfigError(
                f"gymnasium/{self.settings.task}: template {self.settings.template!r} names more than the "
                f"{len(values)} values of an observation"
            ) from error


def _world_of(settings: GymnasiumSettings) -> Any:
    """Make the environment without a step limit.

    Raises:
        ConfigError: If the id is unknown, `make` fails, or the action space is neither Discrete nor Text.
        MissingPackageError: If Gymnasium is not installed.
    """
    try:
        import gymnasium
    except ImportError as error:
        raise missing("gymnasium", error) from error
    drawn = {"render_mode": "ansi"} if "{ansi}" in settings.template else {}
    try:
        world = gymnasium.make(
            settings.task, max_episode_steps=-1, disable_env_checker=True, **drawn, **settings.config
        )
    except (gymnasium.error.Error, TypeError, ValueError) as error:
        raise ConfigError(f"gymnasium/{settings.task} cannot be made: {error}") from error
    if not isinstance(world.action_space, gymnasium.spaces.Discrete | gymnasium.spaces.Text):
        raise ConfigError(
            f"gymnasium/{settings.task} has the action space {world.action_space}; only Discrete and Text are supported"
        )
    return world


def _names(settings: GymnasiumSettings, space: Any) -> tuple[str, ...]:
    """Return the action names of a Discrete space; empty for a Text space."""
    count = int(getattr(space, "n", 0))
    if settings.actions and len(settings.actions) != count:
        raise ConfigError(
            f"gymnasium/{settings.task} has {count} actions to name, but `actions` names "
            f"{len(settings.actions)}: {', '.join(settings.actions)}"
        )
    return tuple(settings.actions) or tuple(map(str, range(count)))


def _leaves(observation: Any) -> list[Any]:
    """Flatten an observation into its numbers and texts, in order."""
    if isinstance(observation, dict):
        return [leaf for key in sorted(observation) for leaf in _leaves(observation[key])]
    if isinstance(observation, np.ndarray | np.generic):
        return _leaves(observation.tolist())
    if isinstance(observation, Iterable) and not isinstance(observation, str):
        return [leaf for part in observation for leaf in _leaves(part)]
    return [observation]


def _written(leaf: Any) -> str:
    return f"{leaf:.4g}" if isinstance(leaf, float) else str(leaf)
