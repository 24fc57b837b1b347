"""Sudoku puzzles, their solver, and the demonstrator."""

import random
from itertools import permutations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from starpo.ragen.core.errors import EnvironmentFault
from starpo.ragen.envs import make
from starpo.ragen.envs.sudoku.demonstrations import demonstrate
from starpo.ragen.envs.sudoku.environment import SudokuSettings
from starpo.ragen.envs.sudoku.grid import digits_left, units
from starpo.ragen.envs.sudoku.puzzles import draw_puzzle, full_grid
from starpo.ragen.envs.sudoku.solver import solutions

SEEDS = st.integers(0, 2**63 - 1)
KNOWN = "530070000600195000098000060800060003400803001700020006060000280000419005000080079"
KNOWN_SOLUTION = "534678912672195348198342567859761423426853791713924856961537284287419635345286179"
"""The puzzle in Wikipedia's article on Sudoku, and its solution."""


def success(skill, num_episodes=200, num_turns=10):
    """Share of episodes in which the demonstrator solves a 4 x 4 puzzle with ten blanks within `num_turns` turns."""
    environment = make(SudokuSettings(num_blanks=10))
    successes = 0
    for seed in range(num_episodes):
        environment.reset(seed=seed)
        rng = random.Random(seed)
        for _ in range(num_turns):
            if not environment.is_success:
                environment.step(demonstrate(environment, skill, rng).actions[0])
        successes += environment.is_success
    return successes / num_episodes


def is_valid(grid, size):
    return all({grid[cell], *(grid[other] for other in unit)} == set(range(1, size + 1))
               for cell, three in enumerate(units(size)) for unit in three)  # fmt: skip


def test_solver_solves_known_puzzle():
    assert solutions(list(map(int, KNOWN)), 9) == [tuple(map(int, KNOWN_SOLUTION))]


def test_all_4x4_grids_are_found():
    by_hand = sum(
        is_valid((*a, *b, *c, *d), 4)
        for a, b in product(permutations(range(1, 5)), repeat=2)
        if not set(a[:2]) & set(b[:2])
        for c, d in product(permutations(range(1, 5)), repeat=2)
        if not set(c[:2]) & set(d[:2]) and all(len({*column}) == 4 for column in zip(a, b, c, d, strict=True))
    )
    assert len(set(solutions([0] * 16, 4, limit=1000))) == by_hand == 288


def test_solver_handles_broken_and_empty_grids():
    assert solutions([1, 1, *[0] * 14], 4) == []
    assert len(solutions([0] * 81, 9, limit=3)) == 3


@pytest.mark.parametrize(("size", "num_blanks"), [(4, 6), (4, 10), (9, 45), (16, 60)])
def test_puzzle_has_requested_blanks_and_uniqueness(size, num_blanks):
    for seed in range(3):
        puzzle = draw_puzzle(size, num_blanks, seed)
        assert puzzle.givens.count(0) == num_blanks
        assert solutions(puzzle.givens, size) == [puzzle.solution]
        assert is_valid(puzzle.solution, size)
        assert draw_puzzle.__wrapped__(size, num_blanks, seed) == puzzle


@given(seed=SEEDS, size=st.sampled_from([4, 9, 16]))
@settings(max_examples=20, deadline=None)
def test_shuffled_grids_keep_the_rules(seed, size):
    assert is_valid(full_grid(size, random.Random(seed)), size)


@given(seed=SEEDS, skill=st.floats(0, 1), num_before=st.integers(0, 6))
@settings(max_examples=60, deadline=None)
def test_reasoning_lists_the_digits_left(seed, skill, num_before):
    environment = make(SudokuSettings(num_blanks=10))
    environment.reset(seed=seed)
    rng = random.Random(seed)
    for _ in range(num_before):
        environment.step(demonstrate(environment, 0.0, rng).actions[0])
    before = environment.state_digest()
    demonstration = demonstrate(environment, skill, rng)
    assert environment.state_digest() == before
    _, row, column, *thought = demonstration.think.split()
    cell = (int(row) - 1) * 4 + int(column) - 1
    cells = environment.cells
    expected = []
    for name, unit in zip(("row", "col", "box"), units(4)[cell], strict=True):
        expected += [name, *(str(cells[other] or ".") for other in unit)]
    left = digits_left(cells, 4, cell)
    assert thought == [*expected, "left", *(map(str, left) if left else ["none"])]
    (action,) = demonstration.actions
    placed, at = action.removeprefix("place ").split(" at ")
    assert at == f"row {row} col {column}"
    assert demonstration.is_resigned == (placed not in thought[thought.index("left") :])


def test_skilled_player_corrects_wrong_digits():
    environment = make(SudokuSettings(num_blanks=8))
    mended = 0
    for seed in range(60):
        environment.reset(seed=seed)
        wrong = [
            action
            for action in environment.actions
            if environment.puzzle.solution[(int(action[15]) - 1) * 4 + int(action[21]) - 1] != int(action[6])
        ]
        if wrong:
            environment.step(wrong[0])
            action = demonstrate(environment, 1.0, random.Random(seed)).actions[0]
            mended += action[8:] == wrong[0][8:]
            assert environment.step(action)[4]["is_right"]
    assert mended > 20


def test_success_rate_grows_with_skill():
    assert success(1.0, num_episodes=60) == 1.0
    assert 0.2 < success(0.0) < 0.4


def test_unreachable_blanks_raise_environment_fault():
    with pytest.raises(EnvironmentFault, match="num_blanks = 13 has one solution; lower num_blanks"):
        draw_puzzle(4, 13, 0)  # no 4 x 4 puzzle with three digits has a unique solution
