"""Search over Sokoban positions: shortest solutions, distances to the solution, pushes within reach.

Pure functions of a `Board`; nothing here is random and nothing is remembered between calls.
"""

from collections import deque
from collections.abc import Hashable, Mapping
from typing import NamedTuple, TypeVar

from starpo.ragen.envs.sokoban.board import ACTIONS, Board, offsets

P = TypeVar("P", bound=Hashable)


class Push(NamedTuple):
    """A push that the player can make without another push before it."""

    box: int
    """The cell of the box."""
    action: str
    """The direction of the push."""
    path: tuple[str, ...]
    """The shortest walk to behind the box, and the push itself as its last action."""


def solve(board: Board, max_states: int = 200_000) -> list[str] | None:
    """Find a solution with as few actions as possible, by breadth-first search.

    Args:
        board: Any number of boxes; any box may go to any target.
        max_states: Positions looked at before the search gives up. One box on a 6x6 board has at most 240.

    Returns:
        The actions, [] if the board is solved; None if there is no solution, or none among `max_states` positions.
    """
    if board.is_solved:
        return []
    moves = _moves(board)
    goal = _bits(board.targets)
    start = (board.player, _bits(board.boxes))
    came_from: dict[tuple[int, int], tuple[tuple[int, int], str] | None] = {start: None}
    queue = deque([start])
    while queue and len(came_from) <= max_states:
        position = queue.popleft()
        player, boxes = position
        for action, ahead, ahead_bit, beyond_bit in moves[player]:
            if not boxes & ahead_bit:
                following = (ahead, boxes)
            elif beyond_bit and not boxes & beyond_bit:
                following = (ahead, boxes ^ ahead_bit ^ beyond_bit)
            else:
                continue
            if following in came_from:
                continue
            came_from[following] = (position, action)
            if following[1] == goal:
                return _path(came_from, following)
            queue.append(following)
    return None


def distance_table(
    width: int, floor: frozenset[int], target: int, max_distance: int | None = None
) -> dict[tuple[int, int], int]:
    """Length of the shortest solution of every position with one box, by one backwards search from the target.

    Args:
        width: Of the board that numbers the cells.
        floor: Its cells that are not walls.
        target: The one target.
        max_distance: Leave out positions farther away. None: all solvable positions.

    Returns:
        (player, box) -> actions to the solution. Positions from which there is none are absent. Of the solved ones
        (0 actions) only those that a push can end in are there. In order of distance, and always in the same order.
    """
    directions = tuple(offsets(width).values())
    layer = [(target - offset, target) for offset in directions if target - offset in floor]
    table = dict.fromkeys(layer, 0)
    distance = 0
    while layer and distance != max_distance:
        distance += 1
        earlier = []
        for player, box in layer:
            for offset in directions:
                before = player - offset
                if before not in floor or before == box:
                    continue
                # An episode ends with the box on the target, so no walk starts there. A push that starts there is
                # found too, but its positions are in the first layer already.
                if box != target and (before, box) not in table:
                    table[before, box] = distance
                    earlier.append((before, box))
                if player + offset == box and (before, player) not in table:
                    table[before, player] = distance
                    earlier.append((before, player))
        layer = earlier
    return table


def feasible_pushes(board: Board) -> list[Push]:
    """All pushes that the player can walk to and make, wise or not.

    Returns:
        In order of the boxes' cells and of `ACTIONS`; empty if no box can be moved any more.
    """
    came_from = _walks(board)
    free = board.floor - board.boxes
    pushes = []
    for box in sorted(board.boxes):
        for action, offset in offsets(board.width).items():
            if box - offset in came_from and box + offset in free:
                pushes.append(Push(box, action, (*_path(came_from, box - offset), action)))
    return pushes


def first_push(board: Board, actions: list[str]) -> Push | None:
    """The first push in a sequence of actions, with the walk that leads there; None if it makes none."""
    for number, action in enumerate(actions, start=1):
        following = board.after(action)
        if following.boxes != board.boxes:
            return Push(following.player, action, tuple(actions[:number]))
        board = following
    return None


def live_cells(board: Board) -> frozenset[int]:
    """Cells from which a lone box can still be pushed to some target. A box on any other cell is lost for good."""
    directions = tuple(offsets(board.width).values())
    live = set(board.targets)
    queue = deque(sorted(board.targets))
    while queue:
        box = queue.popleft()
        for offset in directions:
            before, player = box - offset, box - 2 * offset
            if before in board.floor and player in board.floor and before not in live:
                live.add(before)
                queue.append(before)
    return frozenset(live)


def _moves(board: Board) -> dict[int, list[tuple[str, int, int, int]]]:
    """By floor cell: action, the cell ahead, its bit, and the bit of the cell beyond it, 0 if no box may go there."""
    live = live_cells(board)
    moves: dict[int, list[tuple[str, int, int, int]]] = {cell: [] for cell in board.floor}
    for cell in board.floor:
        for action, offset in offsets(board.width).items():
            ahead, beyond = cell + offset, cell + 2 * offset
            if ahead in board.floor:
                moves[cell].append((action, ahead, 1 << ahead, 1 << beyond if beyond in live else 0))
    return moves


def _walks(board: Board) -> dict[int, tuple[int, str] | None]:
    """By cell that the player can walk to: the cell before it and the action between; None at the player's own."""
    steps = offsets(board.width)
    came_from: dict[int, tuple[int, str] | None] = {board.player: None}
    queue = deque([board.player])
    while queue:
        cell = queue.popleft()
        for action in ACTIONS:
            ahead = cell + steps[action]
            if ahead in board.floor and ahead not in board.boxes and ahead not in came_from:
                came_from[ahead] = (cell, action)
                queue.append(ahead)
    return came_from


def _path(came_from: Mapping[P, tuple[P, str] | None], position: P) -> list[str]:
    """The actions that led to a position of a breadth-first search."""
    actions = []
    while (step := came_from[position]) is not None:
        position, action = step
        actions.append(action)
    return actions[::-1]


def _bits(cells: frozenset[int]) -> int:
    return sum(1 << cell for cell in cells)
