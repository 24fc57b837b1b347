"""Claims about a board of 2048: its largest tile, the number of pairs that merge, and the possible moves."""

import re
from functools import lru_cache

from starpo.ragen.envs.claim import Claim
from starpo.ragen.envs.game_2048.board import SIZE, Board, largest, moves, slide

_TERSE = re.compile(r"largest (?P<largest>\d+) rows (?P<rows>\d+) columns (?P<columns>\d+) free (?P<free>\w+(?: \w+)*)")
_MARK = re.compile(r"\.|\d{1,6}")
_GRID_WIDTH = 3 * SIZE - 1
"""Minimum width of a line of tiles, which take at least two characters each. A line of exponents is as wide only if all
four tiles are 1024 or more."""


def claims(observation: str, reasoning: str) -> list[Claim]:
    """Return the checkable claims in the reasoning, in order; [] if observation or reasoning cannot be parsed."""
    board, terse = read_board(observation), _TERSE.fullmatch(reasoning.strip())
    if board is None or terse is None:
        return []
    truths = {
        "largest": str(largest(board).bit_length() - 1),
        "rows": str(len(slide(board, "Left")[1])),
        "columns": str(len(slide(board, "Up")[1])),
        "free": " ".join(moves(board)),
    }
    return [Claim(name, f"{name} {terse[name]}", terse[name] == truth, truth) for name, truth in truths.items()]


@lru_cache(65_536)
def read_board(observation: str) -> Board | None:
    """Parse the tiles of an observation in either form of `ragen.envs.game_2048.environment`; None if it is none."""
    lines = observation.splitlines()
    rows = [line.split() for line in lines]
    if [len(row) for row in rows] != [SIZE] * SIZE or not all(map(_MARK.fullmatch, " ".join(lines).split())):
        return None
    if all(len(line) >= _GRID_WIDTH for line in lines):
        return tuple(tuple(0 if mark == "." else int(mark) for mark in row) for row in rows)
    return tuple(tuple(0 if mark in ".0" else 1 << int(mark) for mark in row) for row in rows)
