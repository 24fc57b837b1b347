"""2048 (RAGEN-2, environments): slide tiles, merge equal ones, and reach the goal tile before no move is left.

seed -> the first two tiles        dynamics_seed -> the tiles that appear
"""

import math
import random
from hashlib import blake2b
from typing import ClassVar, Literal

from pydantic import Field, field_validator

from starpo.ragen.core.errors import EnvironmentFault
from starpo.ragen.core.seeding import python_random
from starpo.ragen.envs.base import Environment, EnvironmentSettings, Info
from starpo.ragen.envs.game_2048.board import (
    ACTIONS,
    NEW_TILES,
    SIZE,
    Board,
    free_cells,
    largest,
    moves,
    slide,
    with_tile,
)

_EMPTY_BOARD: Board = ((0,) * SIZE,) * SIZE
_REWARD_SCALE = 0.1


class Game2048Settings(EnvironmentSettings):
    """The goal and the form of observations."""

    type: Literal["game_2048"] = "game_2048"
    goal: int = Field(2048, ge=8, le=131_072)
    """Tile to reach, a power of two; the game ends when it is made. 131072 is the largest possible."""
    observation: Literal["grid", "compact"] = "grid"
    """'grid': the tiles. 'compact': their exponents, 1 for 2, 2 for 4 and so on, and 0 for a free cell."""

    @field_validator("goal")
    @classmethod
    def _goal_is_a_tile(cls, goal: int) -> int:
        if goal & (goal - 1):
            raise ValueError(f"goal = {goal} is not a power of two, such as 64 or 2048, so no tile can have it")
        return goal


class Game2048(Environment[Game2048Settings]):
    """Environment with one game per episode, until the goal is reached or no move is possible."""

    settings_type = Game2048Settings
    num_initial_states: ClassVar[int | None] = 480  # 120 pairs of cells, each cell with 2 or 4
    demonstrator: ClassVar[str] = "starpo.ragen.envs.game_2048.demonstrations:demonstrate"

    def __init__(self, settings: Game2048Settings) -> None:
        super().__init__(settings)
        self._board: Board | None = None
        self._chance = random.Random(0)

    @property
    def board(self) -> Board:
        """The tiles, row by row; 0 is a free cell."""
        if self._board is None:
            raise EnvironmentFault("game_2048: there is no board before the first reset; call reset")
        return self._board

    @property
    def is_over(self) -> bool:
        """Whether the goal is reached or no move is possible."""
        return self.is_success or not moves(self.board)

    def reset(self, *, seed: int, dynamics_seed: int = 0) -> tuple[str, Info]:
        """Place two tiles on an empty board."""
        rng = python_random(seed, "2048")
        self._board = _with_new_tile(_with_new_tile(_EMPTY_BOARD, rng), rng)
        self.reseed(dynamics_seed)
        return self.render(), {}

    def reseed(self, dynamics_seed: int) -> None:
        """See `Environment.reseed`."""
        self._chance = python_random(dynamics_seed, "2048 tiles")

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Push the tiles; the reward is 0.1 log2(1 + sum of the tiles created by merging).

        A push that moves no tile is a no-op: no new tile appears, and the reward is 0.
        """
        before = self.board
        if action not in ACTIONS:
            raise EnvironmentFault(f"game_2048: '{action}' is not an action; the actions are {', '.join(ACTIONS)}")
        if self.is_over:
            raise EnvironmentFault("game_2048: the game has ended, at the goal or with no move left; call reset")
        board, made = slide(before, action)
        self._board = board if board == before else _with_new_tile(board, self._chance)
        reward = _REWARD_SCALE * math.log2(1 + sum(made))
        info = {
            "effective": self._board != before,
            "is_success": self.is_success,
            "made": list(made),
            "largest": largest(self._board),
        }
        return self.render(), reward, self.is_over, False, info

    @property
    def actions(self) -> tuple[str, ...]:
        """Up, Down, Left, Right."""
        return ACTIONS

    @property
    def has_chance(self) -> bool:
        """Always True: position and value of new tiles are random."""
        return True

    @property
    def is_success(self) -> bool:
        """Whether there is a tile at least as large as the goal."""
        return self._board is not None and largest(self._board) >= self.settings.goal

    def rules(self) -> str:
        """Return the task description, with the symbols of the configured observation."""
        symbols = "a dot is an empty cell"
        if self.settings.observation == "compact":
            symbols = "each number is the exponent of a tile: 1 for 2, 2 for 4, 3 for 8; 0 is an empty cell"
        chances = " or ".join(f"a {tile} with probability {probability:g}" for tile, probability in NEW_TILES)
        return "\n".join(
            [
                f"You are playing 2048 on a {SIZE} x {SIZE} board. Reach the {self.settings.goal} tile.",
                "An action slides all tiles in that direction; two equal tiles that collide merge into their sum.",
                f"After each action that changes the board, a new tile appears in a random empty cell: {chances}.",
                f"An action earns {_REWARD_SCALE:g} * log2(1 + sum of the tiles created by merging). The game ends "
                "when you reach the goal, or when no action would change the board.",
                f"Board: {symbols}.",
                f"Actions: {', '.join(ACTIONS)}",
            ]
        )

    def state_digest(self) -> str:
        """Return a digest of the tiles."""
        return blake2b(str(self.board).encode(), digest_size=8).hexdigest()

    def render(self) -> str:
        """Return the observation in the configured form."""
        if self.settings.observation == "compact":
            return "\n".join(" ".join(str(_exponent(tile)) for tile in tiles) for tiles in self.board)
        width = max(len(str(largest(self.board))), 2)
        return "\n".join(" ".join(f"{tile or '.':>{width}}" for tile in tiles) for tiles in self.board)


def _with_new_tile(board: Board, rng: random.Random) -> Board:
    """Add a tile in a free cell drawn uniformly."""
    row, column = rng.choice(free_cells(board))
    (tile,) = rng.choices([tile for tile, _ in NEW_TILES], [probability for _, probability in NEW_TILES])
    return with_tile(board, row, column, tile)


def _exponent(tile: int) -> int:
    return tile.bit_length() - 1 if tile else 0
