"""Positions of the goal and the holes on an observed lake, or after a walk over it."""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from starpo.ragen.envs.cells import Cell
from starpo.ragen.envs.statements import Scene

_NUMBER = r"(\d{1,9})"
_COMPACT = re.compile(rf"P {_NUMBER} {_NUMBER} G {_NUMBER} {_NUMBER}")


def scene(observation: str, actions: Sequence[str], info: Mapping[str, Any]) -> Scene | None:
    """Return the scene of an observation, after the given actions if any; None if it cannot be parsed.

    Args:
        observation: Observation in any form of the environment.
        actions: Actions taken from there. As the ice may be slippery, their outcome is read from `info`.
        info: Info of the last action; its `cell` is the player's row and column. Without it, the scene is None.
    """
    lake = _read_lake(observation)
    if lake is None or not actions:
        return lake
    if "cell" not in info:
        return None
    row, column = info["cell"]
    return Scene((row, column), lake.things)


@lru_cache(65_536)
def _read_lake(observation: str) -> Scene | None:
    """Parse an observation in any form of `ragen.envs.frozen_lake.environment`; None if it is none."""
    line, _, ground = observation.partition("\n")
    if compact := _COMPACT.fullmatch(line):
        row, column, goal_row, goal_column = map(int, compact.groups())
        return Scene((row, column), {"goal": [(goal_row, goal_column)], "hole": _cells(ground.splitlines(), "O")})
    grid, _, _ = observation.partition("\nPlayer: ")
    rows = grid.splitlines()
    if len({len(row) for row in rows}) != 1 or set("".join(rows)) - set("P_OGX√"):
        return None
    players, goals = _cells(rows, "PX√"), _cells(rows, "G√")
    if not len(players) == len(goals) == 1:
        return None
    return Scene(players[0], {"goal": goals, "hole": _cells(rows, "OX")})


def _cells(rows: list[str], symbols: str) -> list[Cell]:
    return [(r, c) for r, row in enumerate(rows) for c, symbol in enumerate(row) if symbol in symbols]
