"""Positions of boxes and targets on an observed board, or after actions on it."""

from collections.abc import Mapping, Sequence
from typing import Any

from starpo.ragen.envs.sokoban.claims import read_board
from starpo.ragen.envs.statements import Scene


def scene(observation: str, actions: Sequence[str], info: Mapping[str, Any]) -> Scene | None:
    """Return the scene of an observation, after the given actions if any; None if it cannot be parsed.

    Args:
        observation: Observation in any form of the environment.
        actions: Actions to apply from there, with `Board.after`.
        info: Unused, as Sokoban is deterministic.
    """
    seen = read_board(observation)
    if seen is None:
        return None
    board = seen.board
    for action in actions:
        board = board.after(action)
    boxes, targets = ([board.coordinates(cell) for cell in sorted(cells)] for cells in (board.boxes, board.targets))
    return Scene(board.coordinates(board.player), {"box": boxes, "target": targets})
