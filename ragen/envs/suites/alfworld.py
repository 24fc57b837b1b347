"""ALFWorld (Shridhar et al. 2021) and other games of TextWorld from a user's folder: commands in, text out.

seed -> game of the folder        command -> text; winning is rewarded
"""

import copy
import random
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field, JsonValue, ValidationInfo, field_validator

from starpo.ragen.envs.grammar import Pattern
from starpo.ragen.envs.suites.games import Split, content_digest, folder_digest, game_of, games_of
from starpo.ragen.envs.suites.suite import StepResult, Suite, SuiteSettings, values_digest
from starpo.ragen.envs.suites.world import World, library

_GRAMMAR = Pattern(
    regex=r"[^\x00-\x1f\x7f-\x9f]+",
    form="a text command, such as go to <place>, take <thing> from <place>, open <thing>, inventory, look",
    shown="look",
)
_FEW = 100


class AlfworldSettings(SuiteSettings):
    """Selection of the games, their observations and their reward."""

    type: Literal["alfworld"] = "alfworld"
    task: str = Field(min_length=1, max_length=400)
    """Folder of games, such as ALFWorld's `json_2.1.1/train`: all `*.tw-pddl` in it and its subfolders, and all `*.z8`
    with TextWorld's `.json` next to them. A game can execute arbitrary code; use only games from trusted sources."""
    digest: str = Field("", pattern="^([0-9a-f]{16})?$")
    """Digest of the names and sizes of the games, filled in from the folder, so that different games are a different
    environment. If it is given, a folder with another digest is rejected."""
    split: Split = "all"
    """'held_out': every tenth game in path order. 'train': all others. ALFWorld's own splits are folders; use 'all' to
    take everything in one."""
    reward: float = Field(10.0, gt=0.0)
    """Reward for winning; all else pays 0."""
    should_repeat_task: bool = True
    """Whether every observation begins with the task, which games state only once."""
    should_list_admissible: bool = False
    """Whether an observation ends with a line of all admissible commands."""

    @field_validator("config")
    @classmethod
    def _nothing_else_is_told(cls, config: dict[str, JsonValue]) -> dict[str, JsonValue]:
        if config:
            raise ValueError(
                f"games take no config other than their folder, found {', '.join(config)}; leave config out"
            )
        return config

    @field_validator("digest")
    @classmethod
    def _of_the_games(cls, digest: str, info: ValidationInfo) -> str:
        return digest or (folder_digest(info.data["task"]) if "task" in info.data else "")


class AlfworldGame(Suite[AlfworldSettings]):
    """Environment with one game per episode, until it is won or lost.

    Its state is the set of true facts: a command that changes none, such as one that only prints text, is not
    effective.
    """

    settings_type = AlfworldSettings
    name: ClassVar[str] = "alfworld"

    def __init__(self, settings: AlfworldSettings) -> None:
        super().__init__(settings)
        library()
        self._games = games_of(settings.task, settings.digest, settings.split)
        self._path = Path()
        self._world: World | None = None
        self.num_initial_states = len(self._games) if len(self._games) < _FEW else None  # type: ignore[misc]

    @property
    def world(self) -> World:
        """The running game."""
        assert self.now
        assert self._world is not None
        return self._world

    @property
    def grammar(self) -> Pattern:
        """Any command; each game states which commands it knows."""
        return _GRAMMAR

    @property
    def actions(self) -> tuple[str, ...]:
        """The currently admissible commands."""
        return tuple(command for command in self.world.admissible if _GRAMMAR.read(command) == command)

    def begin(self, seed: int, dynamics_seed: int) -> str:
        """Begin a game; skip games that are marked as unsolvable."""
        self._path = game_of(self._games, seed)
        self._world = World(self._path)
        return self._observation(self._world)

    def origin(self, seed: int) -> str:
        """Return the digest of the game's bytes, regardless of its name."""
        return content_digest(self._path)

    def take(self, action: str) -> StepResult:
        """Send the command to the game."""
        world = self.world
        world.say(action)
        reward = self.settings.reward if world.is_won else 0.0
        return StepResult(self._observation(world), reward, world.is_over, world.is_won)

    def random_action(self, rng: random.Random) -> str:
        """Return one of `actions`."""
        return rng.choice(self.actions or (_GRAMMAR.shown,))

    def rules(self) -> str:
        """Return the settings' description of the task, or general instructions for such games."""
        listed = "The last line of a state lists the commands that work now.\n"
        return self.settings.about or (
            "You are playing a text adventure. The game describes what you see and names your task; you act by typing "
            f"commands.\n{listed if self.settings.should_list_admissible else ''}"
            f"Completing the task earns {self.settings.reward:g}. Every other action earns 0.\n"
            "The game ends when you complete the task or fail it."
        )

    def state_digest(self) -> str:
        """Return a digest of the game and its true facts; of the whole transcript if the game cannot be replayed."""
        if self.replay_fault:
            return super().state_digest()
        return values_digest([self._transcript[0], self.now.is_over, *self.world.facts])

    def clone(self, dynamics_seed: int) -> "AlfworldGame":
        """See `Environment.clone`; restarts the game and repeats the commands so far."""
        assert self.now
        clone = copy.copy(self)
        clone._transcript, clone._world = list(self._transcript), World(self._path)
        for action in self._transcript[1::2]:
            clone._world.say(action)
        return clone

    def _observation(self, world: World) -> str:
        lines = [world.text]
        if self.settings.should_repeat_task and world.task not in world.text:
            lines.insert(0, world.task)
        if self.settings.should_list_admissible and not world.is_over:
            lines.append(f"Admissible: {', '.join(world.admissible)}")
        return "\n".join(lines)
