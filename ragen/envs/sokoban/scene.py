"""Positions of boxes and targets on an observed board, or after actions on it."""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from starpo.ragen.core.errors import EnvironmentFault
from starpo.ragen.envs.sokoban.board import VOCABULARIES, Board, Symbols
from starpo.ragen.envs.statements import Scene

_THING = re.compile(r"(\S) (\d{1,9}) (\d{1,9})")
_THINGS = re.compile(rf"{_THING.pattern}(?: {_THING.pattern})*")


def scene(observation: str, actions: Sequence[str], info: Mapping[str, Any]) -> Scene | None:
    """Return the scene of an observation, after the given actions if any; None if it cannot be parsed.

    Args:
        observation: Observation in any form of the environment.
        actions: Actions to apply from there, with `Board.after`.
        info: Unused, as Sokoban is deterministic.
    """
    board = read_board(observation)
    if board is None:
        return None
    for action in actions:
        board = board.after(action)
    boxes, targets = ([board.coordinates(cell) for cell in sorted(cells)] for cells in (board.boxes, board.targets))
    return Scene(board.coordinates(board.player), {"box": boxes, "target": targets})


@lru_cache(65_536)
def read_board(observation: str) -> Board | None:
    """Parse the board of an observation in any form and vocabulary of `environment`; None if it is none."""
    for symbols in VOCABULARIES.values():
        for read in (_read_compact, _read_grid):
            try:
                board = read(observation, symbols)
            except EnvironmentFault:
                continue
            if board is not None:
                return board
    return None


def _read_grid(observation: str, symbols: Symbols) -> Board:
    """Parse a grid, optionally followed by lines of coordinates."""
    return Board.from_text(observation.partition("\nPlayer: ")[0], symbols)


def _read_compact(observation: str, symbols: Symbols) -> Board | None:
    """Parse a line of things with their coordinates, followed by a map of walls and floor."""
    line, _, grid = observation.partition("\n")
    rows = grid.splitlines()
    if not rows or not _THINGS.fullmatch(line):
        return None
    width = len(rows[0])
    where: dict[str, set[int]] = {symbols.player: set(), symbols.box: set(), symbols.target: set()}
    for symbol, row, column in _THING.findall(line):
        if symbol not in where or int(row) >= len(rows) or int(column) >= width:
            return None
        where[symbol].add(int(row) * width + int(column))
    floor = frozenset(cell for cell, symbol in enumerate("".join(rows)) if symbol == symbols.empty)
    boxes, targets = frozenset(where[symbols.box]), frozenset(where[symbols.target])
    if len(where[symbols.player]) != 1 or not boxes | targets | where[symbols.player] <= floor:
        return None
    board = Board(len(rows), width, floor, targets, boxes, min(where[symbols.player]))
    # `Board.from_text` decides whether this is a valid room.
    return board if Board.from_text(board.to_text(symbols), symbols) == board else None
