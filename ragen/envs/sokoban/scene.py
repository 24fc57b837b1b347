"""Where boxes and targets are, on an observed board or after actions on it."""

from collections.abc import Mapping, Sequence
from typing import Any

from starpo.ragen.envs.sokoban.claims import read_board
from starpo.ragen.envs.statements import Scene


def scene(observation: str, actions: Sequence[str], info: Mapping[str, Any]) -> Scene | None:
    """The scene of an observation, and after these actions where there are any; None: it cannot be read.

    Args:
        observation: In any form of the environment.
        actions: Carried out from there on, by the board's one rule of motion.
        info: Not read: there is no chance in Sokoban.
    """
    seen = read_board(observation)
    if seen is None:
        return None
    board = seen.board
    for action in actions:
        board = board.after(action)
    boxes, targets = ([board.coordinates(cell) for cell in sorted(cells)] for cells in (board.boxes, board.targets))
    return Scene(board.coordinates(board.player), {"box": boxes, "target": targets})
