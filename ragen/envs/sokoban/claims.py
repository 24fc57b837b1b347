"""Claims about a Sokoban board: positions of boxes and targets, and feasible pushes."""

import itertools
import re
from functools import lru_cache
from typing import NamedTuple

from starpo.ragen.core.errors import EnvironmentFault
from starpo.ragen.envs.claim import NUMBER, TERSE_DIRECTION, Cell, Claim, direction, sentences
from starpo.ragen.envs.sokoban.board import VOCABULARIES, Board, Symbols, offsets
from starpo.ragen.envs.sokoban.solver import feasible_pushes

_CELLS = re.compile(rf"({NUMBER}) ({NUMBER})")
_NOWHERE = -1  # stands for a cell outside the board
_THINGS = re.compile(rf"(\S) ({NUMBER}) ({NUMBER})")


class SeenBoard(NamedTuple):
    """A board parsed from an observation."""

    board: Board
    symbols: Symbols
    has_coordinates: bool


def claims(observation: str, reasoning: str) -> list[Claim]:
    """Return the checkable claims in the reasoning, in order; [] if the observation cannot be parsed."""
    seen = read_board(observation)
    if seen is None:
        return []
    board, symbols, has_coordinates = seen
    places = {
        "player": [board.coordinates(board.player)],
        "box": [board.coordinates(cell) for cell in sorted(board.boxes)],
        "target": [board.coordinates(cell) for cell in sorted(board.targets)],
    }
    terse = re.fullmatch(
        rf"{re.escape(symbols.box)} (?P<box>{TERSE_DIRECTION}) "
        rf"{re.escape(symbols.target)} (?P<target>{TERSE_DIRECTION})"
        rf"(?: push (?P<push>up|down|left|right|none)(?: from(?P<walk>(?: {NUMBER} {NUMBER})+))?)?",
        reasoning.strip(),
    )
    if terse is None:
        return sentences(reasoning, places, has_coordinates=has_coordinates)
    return _terse_claims(terse, board, places)


def _terse_claims(said: re.Match[str], board: Board, places: dict[str, list[Cell]]) -> list[Claim]:
    """Check `X down left O up right push left from 3 4 2 4`: directions of box and target, the push, the walk to it.

    The box is relative to the player, the target to that box; the cells of the walk are listed last one first.
    """
    (player,), boxes, targets = places["player"], places["box"], places["target"]
    meant = [box for box in boxes if direction(player, box) == said["box"]]
    from_box = {direction(box, target) for box in meant or boxes for target in targets}
    found = [
        Claim("box from player", said["box"], bool(meant), _either({direction(player, box) for box in boxes})),
        Claim("target from box", said["target"], said["target"] in from_box, _either(from_box)),
    ]
    if said["push"] is not None:
        possible = _pushes(board)
        of_meant = {action for box, action in possible if not meant or board.coordinates(box) in meant}
        is_true = not possible if said["push"] == "none" else said["push"] in of_meant
        found.append(Claim("possible push", f"push {said['push']}", is_true, _either(of_meant) or "none"))
    if said["walk"]:
        walk = [(int(row), int(col)) for row, col in _CELLS.findall(said["walk"])]
        cells = [row * board.width + col if col < board.width else _NOWHERE for row, col in walk]
        behind = {box - offsets(board.width)[action.title()] for box, action in possible if action == said["push"]}
        ends = _either({f"{row} {col}" for row, col in map(board.coordinates, behind)}) or "nowhere"
        is_true = cells[0] in behind and _is_walk(board, [*cells, board.player])
        found.append(Claim("walk", f"from{said['walk']}", is_true, f"a walk that ends at {ends}"))
    return found


def _is_walk(board: Board, cells: list[int]) -> bool:
    """Whether each cell is free floor and adjacent to the one before."""
    steps = set(offsets(board.width).values())
    are_next = all(there - here in steps for here, there in itertools.pairwise(cells))
    return are_next and (board.floor - board.boxes).issuperset(cells)


@lru_cache(65_536)
def read_board(observation: str) -> SeenBoard | None:
    """Parse the board of an observation in any form and vocabulary of `environment`; None if it is none."""
    for symbols in VOCABULARIES.values():
        for read in (_read_compact, _read_grid):
            try:
                seen = read(observation, symbols)
            except EnvironmentFault:
                continue
            if seen is not None:
                return seen
    return None


def _read_grid(observation: str, symbols: Symbols) -> SeenBoard | None:
    """Parse a grid, optionally followed by lines of coordinates."""
    grid, _, coordinates = observation.partition("\nPlayer: ")
    return SeenBoard(Board.from_text(grid, symbols), symbols, bool(coordinates))


def _read_compact(observation: str, symbols: Symbols) -> SeenBoard | None:
    """Parse a line of things with their coordinates, followed by a map of walls and floor."""
    line, _, grid = observation.partition("\n")
    rows = grid.splitlines()
    if not rows or not re.fullmatch(rf"{_THINGS.pattern}(?: {_THINGS.pattern})*", line):
        return None
    width = len(rows[0])
    where: dict[str, set[int]] = {symbols.player: set(), symbols.box: set(), symbols.target: set()}
    for symbol, row, column in _THINGS.findall(line):
        if symbol not in where or int(row) >= len(rows) or int(column) >= width:
            return None
        where[symbol].add(int(row) * width + int(column))
    floor = frozenset(cell for cell, symbol in enumerate("".join(rows)) if symbol == symbols.empty)
    boxes, targets = frozenset(where[symbols.box]), frozenset(where[symbols.target])
    if len(where[symbols.player]) != 1 or not boxes | targets | where[symbols.player] <= floor:
        return None
    board = Board(len(rows), width, floor, targets, boxes, min(where[symbols.player]))
    # `Board.from_text` decides whether this is a valid room.
    is_room = Board.from_text(board.to_text(symbols), symbols) == board
    return SeenBoard(board, symbols, True) if is_room else None


@lru_cache(65_536)
def _pushes(board: Board) -> tuple[tuple[int, str], ...]:
    return tuple((push.box, push.action.lower()) for push in feasible_pushes(board))


def _either(options: set[str]) -> str:
    return " or ".join(sorted(options))
