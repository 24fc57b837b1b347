"""Search over Sokoban positions: shortest solutions, distances to the solution, feasible pushes.

Pure functions of a `Board`: deterministic, and without state between calls.
"""

from collections import deque
from collections.abc import Hashable, Mapping
from typing import NamedTuple, TypeVar

from starpo.ragen.envs.sokoban.board import ACTIONS, Board, offsets

P = TypeVar("P", bound=Hashable)


class Push(NamedTuple):
    """A push that the player can make without another push before it."""

    box: int
    """Cell of the box."""
    action: str
    """Direction of the push."""
    path: tuple[str, ...]
    """A walk to the cell behind the box, ending with the push itself; the shortest one from `feasible_pushes`."""


def solve(board: Board, max_states: int = 200_000) -> list[str] | None:
    """Find a solution with as few actions as possible, by breadth-first search.

    Args:
        board: Any number of boxes; any box may go to any target.
        max_states: Number of positions visited before the search gives up. One box on a 6x6 board has at most 240.

    Returns:
        The actions, [] if the board is solved; None if there is no solution, or none within `max_states` positions.
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
    """Compute the shortest solution length of every one-box position, by one backward search from the target.

    Args:
        width: Width of the board, which determines the cell numbers.
        floor: Cells of the board that are not walls.
        target: Cell of the only target.
        max_distance: Leave out positions farther away. None: all solvable positions.

    Returns:
        (player, box) -> number of actions to the solution. Unsolvable positions are absent. Solved positions (0
        actions) are included only if a push can end in them. In order of distance, and deterministic.
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
                # An episode ends with the box on the target, so no walk starts there. A push off the target is found
                # too, but the position before it is in the first layer already.
                if box != target and (before, box) not in table:
                    table[before, box] = distance
                    earlier.append((before, box))
                if player + offset == box and (before, player) not in table:
                    table[before, player] = distance
                    earlier.append((before, player))
        layer = earlier
    return table


def walks(board: Board) -> dict[int, tuple[str, ...]]:
    """Map each cell within walking reach, the nearest first, to a shortest walk there; () for the player's own."""
    steps = offsets(board.width)
    paths: dict[int, tuple[str, ...]] = {board.player: ()}
    queue = deque([board.player])
    while queue:
        cell = queue.popleft()
        for action in ACTIONS:
            ahead = cell + steps[action]
            if ahead in board.floor and ahead not in board.boxes and ahead not in paths:
                paths[ahead] = (*paths[cell], action)
                queue.append(ahead)
    return paths


def feasible_pushes(board: Board) -> list[Push]:
    """Find all pushes that the player can walk to and make, useful or not.

    Returns:
        Pushes in order of the boxes' cells and of `ACTIONS`; empty if no box can be moved.
    """
    paths = walks(board)
    free = board.floor - board.boxes
    pushes = []
    for box in sorted(board.boxes):
        for action, offset in offsets(board.width).items():
            if box - offset in paths and box + offset in free:
                pushes.append(Push(box, action, (*paths[box - offset], action)))
    return pushes


def first_push(board: Board, actions: list[str]) -> Push | None:
    """Return the first push in a sequence of actions, with the walk that leads there; None if there is no push."""
    for number, action in enumerate(actions, start=1):
        following = board.after(action)
        if following.boxes != board.boxes:
            return Push(following.player, action, tuple(actions[:number]))
        board = following
    return None


def live_cells(board: Board) -> frozenset[int]:
    """Return the cells from which a lone box can be pushed to some target. A box on any other cell is lost."""
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
    """Map each floor cell to (action, cell ahead, its bit, bit of the cell beyond or 0 if no box may go there)."""
    live = live_cells(board)
    moves: dict[int, list[tuple[str, int, int, int]]] = {cell: [] for cell in board.floor}
    for cell in board.floor:
        for action, offset in offsets(board.width).items():
            ahead, beyond = cell + offset, cell + 2 * offset
            if ahead in board.floor:
                moves[cell].append((action, ahead, 1 << ahead, 1 << beyond if beyond in live else 0))
    return moves


def _path(came_from: Mapping[P, tuple[P, str] | None], position: P) -> list[str]:
    """Return the actions that led to a position of a breadth-first search."""
    actions = []
    while (step := came_from[position]) is not None:
        position, action = step
        actions.append(action)
    return actions[::-1]


def _bits(cells: frozenset[int]) -> int:
    return sum(1 << cell for cell in cells)
