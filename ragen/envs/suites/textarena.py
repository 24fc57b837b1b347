"""TextArena's single-player games. A game's final reward is the reward of the episode; 1 is success.

The games draw from the global generators of `random` and `numpy.random`. While a game runs, the global generators hold
the state of its episode and a lock excludes all other games; afterwards they are restored.
"""

import copy
import random
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from starpo.ragen.core.errors import ConfigError, MissingPackageError
from starpo.ragen.core.seeding import derive_seed
from starpo.ragen.envs.grammar import FreeText
from starpo.ragen.envs.suites.suite import StepResult, Suite, SuiteSettings, missing

_GLOBAL = threading.Lock()
_BRACKETED = re.compile(r"\[[^\[\]\n]{1,40}\]")
_RESOURCE = re.compile(r"nltk\.download\('([^']+)'\)")


class TextArenaSettings(SuiteSettings):
    """The game."""

    type: Literal["textarena"] = "textarena"
    task: str = Field("GuessTheNumber-v0", min_length=1, max_length=400)
    """Game id, such as `GuessTheNumber-v0` or `Wordle-v0-train`; `config` is passed to `textarena.make`."""
    max_action_chars: int = Field(200, ge=1, le=20_000)
    """Longer actions are rejected."""
    has_chance: bool = False
    """Whether the game draws random numbers after the reset."""


class TextArenaGame(Suite[TextArenaSettings]):
    """Environment with one game per episode."""

    settings_type = TextArenaSettings
    name: ClassVar[str] = "textarena"

    def __init__(self, settings: TextArenaSettings) -> None:
        super().__init__(settings)
        self._generators = _generators(0)
        with self._own_chance():
            self._game = _game_of(settings)

    @property
    def grammar(self) -> FreeText:
        """Free text; the observation states the format that the game expects."""
        return FreeText("Your action is text in the format that the game asks for.", self.settings.max_action_chars)

    @property
    def has_chance(self) -> bool:
        """As set in the settings."""
        return self.settings.has_chance

    def begin(self, seed: int, dynamics_seed: int) -> str:
        """See `Suite.begin`."""
        start = derive_seed(seed, "textarena")
        self._generators = _generators(start)
        with self._own_chance():
            self._game = _game_of(self.settings)  # wrappers keep the transcript of the previous game
            try:
                self._game.reset(num_players=1, seed=start)
            except AssertionError as error:
                raise ConfigError(f"textarena/{self.settings.task} is not a game for one player: {error}") from error
        self.reseed(dynamics_seed)
        return self._observation()

    def reseed(self, dynamics_seed: int) -> None:
        """See `Environment.reseed`."""
        self._generators = _generators(derive_seed(dynamics_seed, "textarena chance"))

    def take(self, action: str) -> StepResult:
        """See `Suite.take`."""
        with self._own_chance():
            is_over, _ = self._game.step(action)
        if not is_over:
            return StepResult(self._observation())
        rewards, facts = self._game.close()
        reward = float((rewards or {}).get(0, 0.0))
        reason = str(facts.get(0, {}).get("reason", ""))
        return StepResult(f"{self._observation()}\n{reason}".strip(), reward, True, reward >= 1.0)

    def random_action(self, rng: random.Random) -> str:
        """Return a bracketed part of the observation, or a number in brackets."""
        actions = [text for text in _BRACKETED.findall(self.render()) if self.grammar.read(text) == text]
        return rng.choice([*actions, f"[{rng.randint(1, 20)}]"])

    def clone(self, dynamics_seed: int) -> "TextArenaGame":
        """See `Environment.clone`."""
        clone = copy.copy(self)
        clone._game, clone._transcript = copy.deepcopy(self._game), list(self._transcript)
        clone.reseed(dynamics_seed)
        return clone

    def _observation(self) -> str:
        with self._own_chance():
            _, observation = self._game.get_observation()
        if isinstance(observation, list):
            return "\n".join(str(message[1]) for message in observation).strip()
        return str(observation).strip()

    @contextmanager
    def _own_chance(self) -> Iterator[None]:
        """Use this episode's generator states as the global ones inside the context."""
        with _GLOBAL:
            saved = random.getstate(), np.random.get_state()
            random.setstate(self._generators[0])
            np.random.set_state(self._generators[1])
            try:
                yield
            finally:
                self._generators = random.getstate(), np.random.get_state()
                random.setstate(saved[0])
                np.random.set_state(saved[1])


def _generators(seed: int) -> tuple[Any, Any]:
    """Return the states of the two generators for a seed."""
    return random.Random(seed).getstate(), np.random.RandomState(seed % 2**32).get_state()


def _game_of(settings: TextArenaSettings) -> Any:
    """Make the game.

    Raises:
        ConfigError: If the id is unknown or the configuration is invalid.
        MissingPackageError: If TextArena is not installed, or the game needs nltk word lists that are missing.
    """
    try:
        import textarena
    except ImportError as error:
        raise missing("textarena", error) from error
    try:
        return textarena.make(settings.task, **settings.config)
    except LookupError as error:
        match = _RESOURCE.search(str(error))
        raise MissingPackageError(
            f"textarena/{settings.task} needs data of nltk that is not installed: "
            f"python -m nltk.downloader {match.group(1) if match else 'words'}"
        ) from error
    except ImportError as error:
        raise missing("textarena", error) from error
    except (ValueError, TypeError) as error:
        raise ConfigError(f"textarena/{settings.task} cannot be made: {error}") from error
