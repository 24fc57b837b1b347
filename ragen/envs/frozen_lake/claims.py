"""Claims about a lake: direction of the goal, positions of things, and walks over the ice."""

import re
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from starpo.ragen.envs.claim import NUMBER, TERSE_DIRECTION, Cell, Claim, direction, sentences

_COMPACT = re.compile(rf"P ({NUMBER}) ({NUMBER}) G ({NUMBER}) ({NUMBER})")
_TERSE = re.compile(
    rf"G (?P<goal>{TERSE_DIRECTION})"
    rf"(?: go (?:up|down|left|right)| go (?P<end>{NUMBER} {NUMBER})(?: from(?P<way>(?: {NUMBER} {NUMBER})+))?)?"
)
_PLACE = re.compile(rf"({NUMBER}) ({NUMBER})")


class SeenLake(NamedTuple):
    """A lake parsed from an observation."""

    player: Cell
    goal: Cell
    ice: frozenset[Cell]
    has_coordinates: bool
    holes: frozenset[Cell]


def claims(observation: str, reasoning: str) -> list[Claim]:
    """Return the checkable claims in the reasoning, in order; [] if the observation cannot be parsed."""
    seen = read_lake(observation)
    if seen is None:
        return []
    terse = _TERSE.fullmatch(reasoning.strip())
    if terse is None:
        things = {"player": [seen.player], "goal": [seen.goal], "target": [seen.goal]}
        return sentences(reasoning, things, has_coordinates=seen.has_coordinates)
    truth = direction(seen.player, seen.goal)
    found = [Claim("goal from player", terse["goal"], terse["goal"] == truth, truth)]
    if terse["end"]:
        places = _PLACE.findall(f"{terse['end']}{terse['way'] or ''}")
        end, *way = [(int(row), int(column)) for row, column in places]
        is_true = seen.ice.issuperset(way) and all(_is_step(*pair) for pair in pairwise([end, *way, seen.player]))
        said = terse[0][terse[0].index("go ") :]
        found.append(Claim("walk", said, is_true, f"steps over ice that begin at {seen.player[0]} {seen.player[1]}"))
    return found


def _is_step(end: Cell, start: Cell) -> bool:
    """Whether a step leads to an adjacent cell or, as at the edge, to the same cell."""
    return abs(end[0] - start[0]) + abs(end[1] - start[1]) <= 1


@lru_cache(65_536)
def read_lake(observation: str) -> SeenLake | None:
    """Parse an observation in any form of `ragen.envs.frozen_lake.environment`; None if it is none."""
    line, _, ground = observation.partition("\n")
    if compact := _COMPACT.fullmatch(line):
        row, column, goal_row, goal_column = map(int, compact.groups())
        ice, holes = (frozenset(_cells(ground.splitlines(), symbol)) for symbol in "_O")
        return SeenLake((row, column), (goal_row, goal_column), ice, True, holes)
    grid, _, coordinates = observation.partition("\nPlayer: ")
    rows = grid.splitlines()
    if len({len(row) for row in rows}) != 1 or set("".join(rows)) - set("P_OGX√"):
        return None
    players, goals = _cells(rows, "PX√"), _cells(rows, "G√")
    if not len(players) == len(goals) == 1:
        return None
    ice, holes = frozenset(_cells(rows, "P_G√")), frozenset(_cells(rows, "OX"))
    return SeenLake(players[0], goals[0], ice, bool(coordinates), holes)


def _cells(rows: list[str], symbols: str) -> list[Cell]:
    return [(r, c) for r, row in enumerate(rows) for c, symbol in enumerate(row) if symbol in symbols]
