"""The cube compared with group theory, and its solver with known counts."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from starpo.ragen.envs.rubik.cube import (
    ACTIONS,
    CORNERS,
    ROTATIONS,
    SOLVED,
    TURNS,
    is_solved,
    permuted,
    turned,
)
from starpo.ragen.envs.rubik.solver import best_actions, distance, layers, scrambled, solve, upright

SEEDS = st.integers(0, 2**63 - 1)
MARKED = "".join(map(chr, range(65, 89)))
"""A cube of 24 different stickers, so that every change is visible."""


def after(cube, *actions):
    for action in actions:
        cube = turned(cube, action)
    return cube


def order(*actions, solved=lambda cube: cube == MARKED):
    """Count how often actions must be repeated until the cube is as before."""
    cube, count = after(MARKED, *actions), 1
    while not solved(cube):
        cube, count = after(cube, *actions), count + 1
    return count


@pytest.mark.parametrize("action", ACTIONS)
def test_turn_moves_twelve_stickers_order_four(action):
    inverse = action[0] if action.endswith("'") else f"{action}'"
    assert order(action) == 4
    assert after(MARKED, action, inverse) == MARKED
    assert sum(place != number for number, place in enumerate(TURNS[action])) == 12


@pytest.mark.parametrize(
    ("actions", "expected"),
    [(("R", "U"), 15), (("R", "U'"), 9), (("R", "U", "R'", "U'"), 6), (("R", "L"), 4), (("F", "B'"), 4)],
)
def test_orders_of_sequences_on_the_2x2(actions, expected):
    # Those of the 3x3's corners. Its edges have orders 7, 7 and 3 for the first three sequences: 105, 63 and 6 overall.
    assert order(*actions) == expected


def test_turns_of_the_source_by_hand():
    # U, clockwise from above: the front's upper row goes to the left, the right's to the front, and so on.
    cube = after(SOLVED, "U")
    assert cube == "WWWW" + "GGOO" + "RRGG" + "BBRR" + "OOBB" + "YYYY"
    # R, clockwise from the right: the front's right column goes up, the down face's goes to the front.
    assert after(SOLVED, "R") == "WGWG" + "OOOO" + "GYGY" + "RRRR" + "WBWB" + "YBYB"


@given(actions=st.lists(st.sampled_from(ACTIONS), max_size=30))
def test_turns_keep_corners_and_colours(actions):
    cube = after(SOLVED, *actions)
    assert sorted(cube) == sorted(SOLVED)
    corners = {frozenset(MARKED[place] for place in corner) for corner in CORNERS}
    marked = after(MARKED, *actions)
    assert {frozenset(marked[place] for place in corner) for corner in CORNERS} == corners
    assert after(cube, *[a[0] if a.endswith("'") else f"{a}'" for a in reversed(actions)]) == SOLVED


def test_24_ways_to_hold_a_cube():
    assert len({permuted(MARKED, rotation) for rotation in ROTATIONS}) == 24
    assert {is_solved(permuted(SOLVED, rotation)) for rotation in ROTATIONS} == {True}
    assert {upright(permuted(SOLVED, rotation)) for rotation in ROTATIONS} == {SOLVED}


def test_turn_is_opposite_faces_turn():
    for face, behind in ("UD", "LR", "FB"):
        assert upright(after(SOLVED, face)) == upright(after(SOLVED, behind))
        assert is_solved(after(SOLVED, face, f"{behind}'"))


def test_counts_of_cubes_at_each_distance():
    # In quarter turns, regardless of how the cube is held: 1, 6, 27, 120, 534 of 3,674,160.
    counts = [0] * 5
    for turns in layers(4).values():
        counts[turns] += 1
    assert counts == [1, 6, 27, 120, 534]


@given(seed=SEEDS, num_turns=st.integers(1, 5))
@settings(max_examples=15, deadline=None)
def test_scrambles_need_exact_turn_count(seed, num_turns):
    cube = scrambled(num_turns, random.Random(seed))
    solution = solve(cube)
    assert len(solution) == num_turns
    assert is_solved(after(cube, *solution))
    for action in ACTIONS:
        assert (distance(turned(cube, action)) == num_turns - 1) == (action in best_actions(cube))


def test_distant_cubes_have_no_distance():
    far = after(SOLVED, "R", "U", "F", "R", "U", "F", "R", "U", "F")
    assert distance(far) is None
    assert solve(far) is None
    assert best_actions(far) == ()
    assert (solve(SOLVED), best_actions(SOLVED)) == ((), ())
