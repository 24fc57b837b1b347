"""Sokoban: push every box onto a target. Deterministic and irreversible: a box in a corner stays there.

Rules, rewards and symbols follow RAGEN; transitions and rewards equal gym-sokoban's, with its four push actions, which
walk if there is nothing to push.

    seed -> room (rooms) -> Board (board) -> text, or pixels (tiles)
"""

import copy
import hashlib
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import product
from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from starpo.ragen.core.errors import EnvironmentFault
from starpo.ragen.core.seeding import python_random
from starpo.ragen.envs.base import Environment, EnvironmentSettings, Info
from starpo.ragen.envs.sokoban.board import ACTIONS, VOCABULARIES, Board, Symbols
from starpo.ragen.envs.sokoban.rooms import at_distance, reverse_play
from starpo.ragen.envs.sokoban.solver import live_cells

ACTION_REWARD = -0.1
BOX_ON_TARGET_REWARD = 1.0
BOX_OFF_TARGET_REWARD = -1.0
SOLVED_REWARD = 10.0

_DEFAULT_SOLUTION = (6, 10)
_DEFAULT_SEARCH_DEPTH = 300


class SokobanSettings(EnvironmentSettings):
    """Generation of the rooms and form of observations."""

    type: Literal["sokoban"] = "sokoban"
    height: int = Field(6, ge=5, le=32)
    """Number of rows, including the surrounding walls."""
    width: int = Field(6, ge=5, le=32)
    """Number of columns, including the surrounding walls."""
    num_boxes: int = Field(1, ge=1, le=16)
    """Number of boxes, and of targets."""
    vocabulary: Literal["default", "new"] = "default"
    """Symbols of wall, empty, target, box on target, box, player, player on target. 'default': # _ O √ X P S.
    'new': W . G C B A @."""
    observation: Literal["grid", "coord", "compact"] = "grid"
    """'grid': one symbol per cell. 'coord': the grid, then zero-based coordinates of player, boxes and targets.
    'compact': a line such as `P 1 2 X 2 2 O 3 4` with a row and a column for the player and every box and target, then
    a grid of walls and empty cells alone."""
    generator: Literal["reverse_play", "distance"] = "reverse_play"
    """'reverse_play': as in gym-sokoban and the paper. 'distance': one box, and a start whose shortest solution has a
    length uniform in min_solution .. max_solution."""
    min_solution: int = Field(_DEFAULT_SOLUTION[0], ge=1, le=100)
    """Minimum length of the shortest solution, in actions; for generator = 'distance'."""
    max_solution: int = Field(_DEFAULT_SOLUTION[1], ge=1, le=100)
    """Maximum length of the shortest solution, in actions; for generator = 'distance'."""
    search_depth: int = Field(_DEFAULT_SEARCH_DEPTH, ge=3, le=10_000)
    """Depth limit, in actions, of the backward search from the solved position; for generator = 'reverse_play'."""

    @model_validator(mode="after")
    def _combination_exists(self) -> "SokobanSettings":
        interior = (self.height - 2) * (self.width - 2)
        if 2 * self.num_boxes + 1 > interior:
            raise ValueError(
                f"num_boxes = {self.num_boxes} needs {2 * self.num_boxes + 1} cells for boxes, targets and player, but "
                f"{self.height}x{self.width} has {interior} inside its walls; set num_boxes smaller or the room larger"
            )
        if self.generator == "distance":
            if self.num_boxes != 1:
                raise ValueError(
                    f"generator = 'distance' makes rooms with one box, found num_boxes = {self.num_boxes}; "
                    "set num_boxes = 1 or generator = 'reverse_play'"
                )
            if self.min_solution > self.max_solution:
                raise ValueError(
                    f"min_solution = {self.min_solution} is above max_solution = {self.max_solution}; swap them"
                )
            if self.search_depth != _DEFAULT_SEARCH_DEPTH:
                raise ValueError(
                    "search_depth has no effect while generator = 'distance'; leave it out, or set "
                    "generator = 'reverse_play'"
                )
        elif (self.min_solution, self.max_solution) != _DEFAULT_SOLUTION:
            raise ValueError(
                "min_solution and max_solution have no effect while generator = 'reverse_play'; leave them out, or set "
                "generator = 'distance'"
            )
        return self


class Sokoban(Environment[SokobanSettings]):
    """The Sokoban environment.

    Rewards: -0.1 per action, effective or not; +1 when a box is pushed onto a target, -1 when one is pushed off (0 from
    target to target); +10 when all boxes are on targets, which ends the episode.

    Info: `effective`; `moved_box`; `num_boxes_on_target`; `has_lost_box`, true if some box is on a cell from which it
    can never reach a target (a sufficient, not a necessary condition for a lost position).
    """

    settings_type: ClassVar[type[EnvironmentSettings]] = SokobanSettings
    action_cost: ClassVar[float] = ACTION_REWARD
    demonstrator: ClassVar[str] = "starpo.ragen.envs.sokoban.demonstrations:demonstrate"
    words = tuple(
        text for cells in product("#_", repeat=4) for text in (f"#{''.join(cells)}#\n", f"#{''.join(cells)}#")
    )
    report_settings: ClassVar[Mapping[str, Any]] = {"observation": "grid", "vocabulary": "default"}

    def __init__(self, settings: SokobanSettings) -> None:
        super().__init__(settings)
        self._board: Board | None = None
        self._live_cells: frozenset[int] = frozenset()

    @property
    def board(self) -> Board:
        """The current position.

        Raises:
            EnvironmentFault: Before the first `reset`.
        """
        if self._board is None:
            raise EnvironmentFault("no Sokoban episode has begun; call reset(seed=...) first")
        return self._board

    @property
    def symbols(self) -> Symbols:
        """The symbols of the configured vocabulary."""
        return VOCABULARIES[self.settings.vocabulary]

    @property
    def actions(self) -> tuple[str, ...]:
        """Up, Down, Left, Right: walk, or push a box that is in the way."""
        return ACTIONS

    @property
    def is_success(self) -> bool:
        """Whether all boxes are on targets."""
        return self._board is not None and self._board.is_solved

    def reset(self, *, seed: int, dynamics_seed: int = 0) -> tuple[str, Info]:
        """Begin an episode in the room of this seed. The dynamics are deterministic: `dynamics_seed` is unused."""
        return self.start_from(_room(self.settings, seed))

    def start_from(self, board: Board) -> tuple[str, Info]:
        """Begin an episode in a given position, as `reset` does in a random one."""
        self._board = board
        self._live_cells = _live_cells(board)
        return self.render(), _info(board, board) | self._prospect()

    def clone(self, dynamics_seed: int) -> Self:
        """See `Environment.clone`; a position is immutable."""
        if type(self) is not Sokoban:  # a subclass may have parts that change
            return super().clone(dynamics_seed)
        clone = copy.copy(self)
        clone.reseed(dynamics_seed)
        return clone

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Walk or push one cell; see `Environment.step`."""
        before = self.board
        if action not in ACTIONS:
            raise EnvironmentFault(f"Sokoban knows the actions {', '.join(ACTIONS)}, found '{action}'")
        if before.is_solved:
            raise EnvironmentFault("the Sokoban episode has ended, all boxes are on targets; call reset(seed=...)")
        after, reward, info = _outcome(before, action)
        self._board = after
        return self.render(), reward, after.is_solved, False, info | self._prospect()

    def rules(self) -> str:
        """Return the task description and the meaning of the symbols of the configured vocabulary."""
        s = self.symbols
        lines = self._rules()
        if self.settings.observation == "compact":
            lines.append(
                f"The first line of the state gives zero-based coordinates, row and then column counted from the top "
                f"left: of the player after {s.player}, of a box after {s.box}, of a target after {s.target}. "
                f"The map below shows {s.wall} for a wall and {s.empty} for any other cell."
            )
            return "\n".join(lines)
        meanings = (f"{symbol} = {name.replace('_', ' ')}" for name, symbol in s._asdict().items())
        lines.append(f"Symbols of the state: {', '.join(meanings)}.")
        if self.settings.observation == "coord":
            lines.append(
                "Coordinates are zero-based (row, column), counted from the top left; rows grow downward, "
                "columns to the right."
            )
        return "\n".join(lines)

    def picture_rules(self) -> str:
        """Return the task description, with what the picture shows."""
        meanings = (
            "In the picture: grey bricks = wall, red rings = targets, brown crates = boxes, green crates = boxes on "
            "targets, the blue figure = player."
        )
        return "\n".join([*self._rules(), meanings])

    def _rules(self) -> list[str]:
        return [
            "You are solving a Sokoban puzzle. You are the player, and you must push every box onto a target.",
            "An action moves you one cell Up, Down, Left or Right. If a box is in that cell, you push it one cell "
            "onward, provided that the cell behind it is free: not a wall, and not another box.",
            "You cannot walk through walls or boxes, push two boxes at once, or pull a box.",
            f"Every action costs {-ACTION_REWARD:g}. A box pushed onto a target earns {BOX_ON_TARGET_REWARD:g}, one "
            f"pushed off a target loses {-BOX_OFF_TARGET_REWARD:g}, and all boxes on targets earn {SOLVED_REWARD:g}.",
        ]

    def state_digest(self) -> str:
        """See `Environment.state_digest`; independent of the vocabulary and the form of observations."""
        return _digest(self.board)

    def render(self) -> str:
        """Return the current observation in the configured form."""
        return _observation(self.board, self.settings.observation, self.symbols)

    def render_rgb(self) -> np.ndarray:
        """Return the current position as an image, uint8 [height * 32, width * 32, 3]."""
        from starpo.ragen.envs.sokoban.tiles import draw

        return draw(self.board)

    def _prospect(self) -> Info:
        return {"has_lost_box": not self.board.boxes <= self._live_cells}


@lru_cache(maxsize=4096)
def _room(settings: SokobanSettings, seed: int) -> Board:
    """Make the room of a seed, once for all members of its group."""
    rng = python_random(seed, "sokoban", "room")
    if settings.generator == "distance":
        return at_distance(rng, settings.height, settings.width, settings.min_solution, settings.max_solution)
    return reverse_play(rng, settings.height, settings.width, settings.num_boxes, settings.search_depth)


# The members of a group visit many of the same positions of one room, so results per position are cached.
_POSITIONS = 65_536


@lru_cache(_POSITIONS)
def _live_cells(board: Board) -> frozenset[int]:
    return live_cells(board)


@lru_cache(_POSITIONS)
def _outcome(before: Board, action: str) -> tuple[Board, float, Info]:
    """Return the next position, the reward, and the info of an action."""
    after = before.after(action)
    reward = ACTION_REWARD
    if after.num_boxes_on_target > before.num_boxes_on_target:
        reward += BOX_ON_TARGET_REWARD
    elif after.num_boxes_on_target < before.num_boxes_on_target:
        reward += BOX_OFF_TARGET_REWARD
    if after.is_solved:
        reward += SOLVED_REWARD
    return after, reward, _info(before, after)


def _info(before: Board, after: Board) -> Info:
    return {
        "effective": after != before,
        "moved_box": after.boxes != before.boxes,
        "num_boxes_on_target": after.num_boxes_on_target,
    }


@lru_cache(_POSITIONS)
def _digest(board: Board) -> str:
    return hashlib.blake2b(board.to_text().encode(), digest_size=8).hexdigest()


@lru_cache(_POSITIONS)
def _observation(board: Board, form: str, s: Symbols) -> str:
    if form == "grid":
        return board.to_text(s)
    if form == "coord":
        return (
            f"{board.to_text(s)}\nPlayer: {_pairs(board, {board.player})}\nBoxes: {_pairs(board, board.boxes)}\n"
            f"Targets: {_pairs(board, board.targets)}"
        )
    things = [(s.player, board.player)]
    things += [(s.box, cell) for cell in sorted(board.boxes)]
    things += [(s.target, cell) for cell in sorted(board.targets)]
    line = " ".join("{} {} {}".format(symbol, *board.coordinates(cell)) for symbol, cell in things)
    cells = "".join(s.empty if cell in board.floor else s.wall for cell in range(board.height * board.width))
    return "\n".join([line, *(cells[start : start + board.width] for start in range(0, len(cells), board.width))])


def _pairs(board: Board, cells: Iterable[int]) -> str:
    return " ".join("({}, {})".format(*board.coordinates(cell)) for cell in sorted(cells))
