from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from starpo.ragen.core.seeding import python_random
from starpo.ragen.envs.sokoban.board import ACTIONS, Board
from starpo.ragen.envs.sokoban.rooms import reverse_play, topology
from starpo.ragen.envs.sokoban.solver import distance_table, feasible_pushes, first_push, live_cells, solve


def played(board, actions):
    for action in actions:
        board = board.after(action)
    return board


def shortest_by_brute_force(board):
    """Return the length of the shortest solution by breadth-first search over boards; None if there is none."""
    visited, queue = {board}, deque([(board, 0)])
    while queue:
        here, length = queue.popleft()
        if here.is_solved:
            return length
        for following in map(here.after, ACTIONS):
            if following not in visited:
                visited.add(following)
                queue.append((following, length + 1))
    return None


def test_unsolvable_is_none_solved_is_empty():
    assert solve(Board.from_text("######\n#X__O#\n#__P_#\n######")) is None
    assert solve(Board.from_text("######\n#√__P#\n######")) == []


def test_solver_stops_at_state_limit():
    board = Board.from_text("#######\n#P____#\n#__X__#\n#____O#\n#######")
    assert len(solve(board)) == shortest_by_brute_force(board)
    assert solve(board, max_states=5) is None


@given(seed=st.integers(0, 10_000), num_boxes=st.integers(1, 2))
def test_solutions_solve_and_are_shortest(seed, num_boxes):
    board = reverse_play(python_random(seed), 6, 6, num_boxes, search_depth=40)
    solution = solve(board)
    assert played(board, solution).is_solved
    assert len(solution) == shortest_by_brute_force(board)


@given(seed=st.integers(0, 10_000))
def test_distance_table_equals_solver_everywhere(seed):
    rng = python_random(seed)
    cells = topology(rng, 5, 6)
    target = rng.choice(cells)
    table = distance_table(6, frozenset(cells), target)
    for box in set(cells) - {target}:
        for player in set(cells) - {box}:
            board = Board(5, 6, frozenset(cells), frozenset([target]), frozenset([box]), player)
            solution = solve(board)
            assert table.get((player, box)) == (None if solution is None else len(solution))


@given(seed=st.integers(0, 10_000), limit=st.integers(0, 8))
def test_bounded_distances_equal_full_table(seed, limit):
    rng = python_random(seed)
    cells = topology(rng, 6, 6)
    whole = distance_table(6, frozenset(cells), cells[0])
    near = distance_table(6, frozenset(cells), cells[0], max_distance=limit)
    assert near == {position: distance for position, distance in whole.items() if distance <= limit}
    assert list(whole.values()) == sorted(whole.values())


@given(seed=st.integers(0, 10_000), num_boxes=st.integers(1, 3))
def test_every_feasible_push_is_found(seed, num_boxes):
    board = reverse_play(python_random(seed), 7, 7, num_boxes, search_depth=15)
    pushes = feasible_pushes(board)
    for push in pushes:
        before = played(board, push.path[:-1])
        assert before.boxes == board.boxes
        assert before.after(push.action).boxes != board.boxes
        assert first_push(board, list(push.path)) == push
    reachable, queue = {board}, deque([board])
    made = set()
    while queue:
        here = queue.popleft()
        for action in ACTIONS:
            following = here.after(action)
            if following.boxes != board.boxes:
                made.add((following.player, action))
            elif following not in reachable:
                reachable.add(following)
                queue.append(following)
    assert {(push.box, push.action) for push in pushes} == made


def test_live_cells_by_hand():
    # The target is at the upper wall. A box in a corner, at the lower wall or at a side wall can never reach it.
    board = Board.from_text("#######\n#__O__#\n#__X__#\n#__P__#\n#######")
    live = {divmod(cell, 7) for cell in live_cells(board)}
    assert live == {(1, 2), (1, 3), (1, 4), (2, 2), (2, 3), (2, 4)}


@given(seed=st.integers(0, 10_000))
def test_box_on_dead_cell_unsolvable(seed):
    rng = python_random(seed)
    cells = topology(rng, 5, 5)
    target = rng.choice(cells)
    for box in cells:
        boards = [
            Board(5, 5, frozenset(cells), frozenset([target]), frozenset([box]), player)
            for player in cells
            if player != box
        ]
        if boards and box not in live_cells(boards[0]):
            assert all(shortest_by_brute_force(board) is None for board in boards)
