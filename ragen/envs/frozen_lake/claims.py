"""Claims about a lake: where the goal lies, and where things are."""

import re
from functools import lru_cache
from typing import NamedTuple

from starpo.ragen.envs.claim import TERSE_DIRECTION, Cell, Claim, direction, sentences

_COMPACT = re.compile(r"P (\d+) (\d+) G (\d+) (\d+)")
_TERSE = re.compile(rf"G (?P<goal>{TERSE_DIRECTION})(?: go (?:up|down|left|right))?")


class SeenLake(NamedTuple):
    """A lake as an observation shows it."""

    player: Cell
    goal: Cell
    has_coordinates: bool


def claims(observation: str, reasoning: str) -> list[Claim]:
    """The statements of a reasoning that can be judged, in order; [] where observation or reasoning cannot be read."""
    seen = read_lake(observation)
    if seen is None:
        return []
    terse = _TERSE.fullmatch(reasoning.strip())
    if terse is None:
        things = {"player": [seen.player], "goal": [seen.goal], "target": [seen.goal]}
        return sentences(reasoning, things, has_coordinates=seen.has_coordinates)
    truth = direction(seen.player, seen.goal)
    return [Claim("goal from player", terse["goal"], terse["goal"] == truth, truth)]


@lru_cache(65_536)
def read_lake(observation: str) -> SeenLake | None:
    """Player and goal of an observation in any form of `ragen.envs.frozen_lake.environment`; None where it is none."""
    line, _, _ = observation.partition("\n")
    if compact := _COMPACT.fullmatch(line):
        row, column, goal_row, goal_column = map(int, compact.groups())
        return SeenLake((row, column), (goal_row, goal_column), True)
    grid, _, coordinates = observation.partition("\nPlayer: ")
    rows = grid.splitlines()
    if len({len(row) for row in rows}) != 1 or set("".join(rows)) - set("P_OGX√"):
        return None
    players, goals = _cells(rows, "PX√"), _cells(rows, "G√")
    return SeenLake(players[0], goals[0], bool(coordinates)) if len(players) == len(goals) == 1 else None


def _cells(rows: list[str], symbols: str) -> list[Cell]:
    return [(r, c) for r, row in enumerate(rows) for c, symbol in enumerate(row) if symbol in symbols]
