"""FrozenLake (RAGEN, environments): walk over slippery ice to the goal; a hole ends the walk.

Transitions and rewards are those of Gymnasium's FrozenLake-v1, on random solvable maps.

    seed -> map, start, goal        dynamics_seed -> slips
"""

import copy
import random
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from hashlib import blake2b
from itertools import product
from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field

from starpo.ragen.core.errors import EnvironmentFault
from starpo.ragen.core.seeding import python_random
from starpo.ragen.envs.base import Environment, EnvironmentSettings, Info
from starpo.ragen.envs.frozen_lake.map import ACTIONS, LakeMap, draw_map

_TILE = 32
_ICE, _EDGE, _HOLE = (214, 234, 248), (174, 205, 226), (30, 58, 95)
_GOAL, _PLAYER, _DROWNED = (46, 160, 67), (214, 69, 65), (126, 92, 120)


class FrozenLakeSettings(EnvironmentSettings):
    """The lake, its slipperiness, and the form of observations."""

    type: Literal["frozen_lake"] = "frozen_lake"
    size: int = Field(4, ge=2, le=16)
    """Side length of the square lake, in cells."""
    slip: float = Field(2 / 3, ge=0.0, le=1.0)
    """Probability of slipping; half of it for each perpendicular direction. 2/3: all three directions are equally
    likely, as in the paper. 0: deterministic."""
    frozen_probability: float = Field(0.8, gt=0.0, le=1.0)
    """Probability that a cell is frozen; the others are holes. Maps without a path to the goal are redrawn."""
    placement: Literal["random", "corners"] = "random"
    """'random': start and goal on any two frozen cells. 'corners': from the top left to the bottom right."""
    min_distance: int = Field(1, ge=1, le=64)
    """Minimum length of the shortest path from start to goal; maps with a shorter one are redrawn. 1: any, as in the
    paper, where half of all goals are at most two moves away."""
    observation: Literal["grid", "coord", "compact"] = "grid"
    """'grid': the symbols. 'coord': the symbols, and zero-based coordinates below them. 'compact': one line with the
    coordinates of player and goal, and the map of the holes."""


class FrozenLake(Environment[FrozenLakeSettings]):
    """Environment with one walk per episode, to the goal or into a hole."""

    settings_type = FrozenLakeSettings
    demonstrator: ClassVar[str] = "starpo.ragen.envs.frozen_lake.demonstrations:demonstrate"
    words = tuple(f"{''.join(cells)}{end}" for cells in product("_O", repeat=4) for end in ("\n", ""))
    report_settings: ClassVar[Mapping[str, Any]] = {"observation": "grid"}

    def __init__(self, settings: FrozenLakeSettings) -> None:
        super().__init__(settings)
        self._lake: LakeMap | None = None
        self._cell = 0
        self._chance = random.Random(0)

    @property
    def lake(self) -> LakeMap:
        """Map of the current episode."""
        if self._lake is None:
            raise EnvironmentFault("frozen_lake: there is no lake before the first reset; call reset")
        return self._lake

    @property
    def cell(self) -> int:
        """Cell of the player."""
        return self._cell

    @property
    def is_over(self) -> bool:
        """Whether the player is in a hole or at the goal."""
        return self.lake.is_end(self._cell)

    def reset(self, *, seed: int, dynamics_seed: int = 0) -> tuple[str, Info]:
        """Draw a solvable map and place the player at its start."""
        self._lake = _lake(self.settings, seed)
        self._cell = self._lake.start
        self.reseed(dynamics_seed)
        return self.render(), {}

    def reseed(self, dynamics_seed: int) -> None:
        """See `Environment.reseed`."""
        self._chance = python_random(dynamics_seed, "frozen lake slips")

    def clone(self, dynamics_seed: int) -> Self:
        """See `Environment.clone`; the map is immutable, and the generator is a new one."""
        if type(self) is not FrozenLake:  # a subclass may have parts that change
            return super().clone(dynamics_seed)
        clone = copy.copy(self)
        clone.reseed(dynamics_seed)
        return clone

    def step(self, action: str) -> tuple[str, float, bool, bool, Info]:
        """Try to move; the reward is 1 on reaching the goal and otherwise 0."""
        if action not in ACTIONS:
            raise EnvironmentFault(f"frozen_lake: '{action}' is not an action; the actions are {', '.join(ACTIONS)}")
        if self.is_over:
            raise EnvironmentFault("frozen_lake: the episode has ended, in a hole or at the goal; call reset")
        before = self._cell
        outcomes = self.lake.outcomes(before, action, self.settings.slip)
        (self._cell,) = self._chance.choices([cell for _, cell in outcomes], [chance for chance, _ in outcomes])
        reward = 1.0 if self.is_success else 0.0
        info = {
            "effective": self._cell != before,
            "is_success": self.is_success,
            "is_in_hole": self._cell in self.lake.holes,
            "cell": list(self.lake.coordinates(self._cell)),
        }
        return self.render(), reward, self.is_over, False, info

    @property
    def actions(self) -> tuple[str, ...]:
        """Left, Down, Right, Up."""
        return ACTIONS

    @property
    def has_chance(self) -> bool:
        """Whether the ice is slippery."""
        return self.settings.slip > 0.0

    @property
    def is_success(self) -> bool:
        """Whether the player is at the goal."""
        return self._lake is not None and self._cell == self._lake.goal

    def rules(self) -> str:
        """Return the task description, with the symbols of the configured observation."""
        return self._rules(self._symbols())

    def picture_rules(self) -> str:
        """Return the task description, with what the picture shows."""
        return self._rules(
            "In the picture: pale tiles = ice, dark discs = holes, a green flag = goal, a red dot = player."
        )

    def _rules(self, meanings: str) -> str:
        return "\n".join(
            [
                "You walk over a frozen lake and want to reach the goal without falling into a hole.",
                self._rule_of_chance(),
                "Reaching the goal pays 1 and everything else 0; the goal and every hole end the walk.",
                meanings,
                f"Actions: {', '.join(ACTIONS)}",
            ]
        )

    def state_digest(self) -> str:
        """Return a digest of the map, its goal, and the player's cell."""
        state = (self.lake.size, *sorted(self.lake.holes), "goal", self.lake.goal, "player", self._cell)
        return blake2b(" ".join(map(str, state)).encode(), digest_size=8).hexdigest()

    def render(self) -> str:
        """Return the observation in the configured form."""
        if self.settings.observation == "compact":
            (row, column), (goal_row, goal_column) = map(self.lake.coordinates, (self._cell, self.lake.goal))
            return f"P {row} {column} G {goal_row} {goal_column}\n" + self._rows(self._ground)
        grid = self._rows(self._symbol)
        return grid if self.settings.observation == "grid" else f"{grid}\n{self._coordinates()}"

    def render_rgb(self) -> np.ndarray:
        """Render tiles of 32 x 32 pixels: pale ice, dark holes, a green flag, a red player (violet in a hole)."""
        tiles = [
            _tile(cell in self.lake.holes, cell == self._cell, cell == self.lake.goal)
            for cell in range(self.lake.num_cells)
        ]
        size = self.lake.size
        rows = [np.concatenate(tiles[top : top + size], axis=1) for top in range(0, len(tiles), size)]
        return np.concatenate(rows, axis=0)

    def _rule_of_chance(self) -> str:
        slip = self.settings.slip
        if slip == 0.0:
            return "The ice is not slippery: you go where you want to, and at the edge of the lake you stay."
        return (
            f"The ice is slippery: you go where you want to with probability {1.0 - slip:.2f}, and to either side "
            f"of it with probability {slip / 2:.2f} each; at the edge of the lake you stay."
        )

    def _symbols(self) -> str:
        if self.settings.observation == "compact":
            return "P row column: you; G row column: the goal; both from zero at the top left. Map: _ ice, O hole"
        return "Symbols: P you, _ ice, O hole, G goal, X you in a hole, √ you at the goal"

    def _ground(self, cell: int) -> str:
        return "O" if cell in self.lake.holes else "_"

    def _symbol(self, cell: int) -> str:
        if cell == self._cell:
            return "X" if cell in self.lake.holes else "√" if cell == self.lake.goal else "P"
        return "G" if cell == self.lake.goal else self._ground(cell)

    def _rows(self, symbol_of: Callable[[int], str]) -> str:
        size = self.lake.size
        return "\n".join("".join(map(symbol_of, range(top, top + size))) for top in range(0, size * size, size))

    def _coordinates(self) -> str:
        holes = " ".join(str(self.lake.coordinates(hole)) for hole in sorted(self.lake.holes)) or "none"
        player, goal = self.lake.coordinates(self._cell), self.lake.coordinates(self.lake.goal)
        return f"Player: {player}\nGoal: {goal}\nHoles: {holes}"


@lru_cache(maxsize=4096)
def _lake(settings: FrozenLakeSettings, seed: int) -> LakeMap:
    """Draw the map of a seed, once for all members of its group."""
    rng = python_random(seed, "frozen lake")
    return draw_map(settings.size, settings.frozen_probability, settings.placement, settings.min_distance, rng)


@cache
def _tile(is_hole: bool, has_player: bool, is_goal: bool) -> np.ndarray:
    """Draw a cell, once for all pictures."""
    tile = np.full((_TILE, _TILE, 3), _ICE, np.uint8)
    y, x = np.mgrid[:_TILE, :_TILE] - (_TILE - 1) / 2
    radius = np.hypot(x, y)
    tile[[0, -1], :] = tile[:, [0, -1]] = _EDGE
    if is_hole:
        tile[radius <= 13] = _HOLE
    if has_player:
        tile[radius <= 8.5] = _DROWNED if is_hole else _PLAYER
    if is_goal:  # over the player, so that both are visible at the goal
        tile[(np.abs(x + 6) <= 1) & (np.abs(y) <= 11)] = _HOLE
        tile[(x >= -5) & (y <= 0) & (x - 9 <= -2 * np.abs(y + 5.5))] = _GOAL
    return tile
