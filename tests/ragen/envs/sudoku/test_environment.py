"""Sudoku: rewards by hand, both forms of an action, rejected actions, and observations."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from starpo.ragen.core.errors import EnvironmentFault
from starpo.ragen.envs import make
from starpo.ragen.envs.sudoku.environment import SudokuSettings
from starpo.ragen.envs.sudoku.placements import Placements
from starpo.ragen.envs.sudoku.puzzles import Puzzle

SEEDS = st.integers(0, 2**63 - 1)
SOLUTION = (1, 2, 3, 4, 3, 4, 1, 2, 2, 1, 4, 3, 4, 3, 2, 1)
GIVENS = (0, 2, 3, 0, 0, 4, 1, 2, 2, 1, 4, 3, 4, 3, 2, 1)
"""Three blanks, (1, 1), (1, 4) and (2, 1): rows and columns from 1."""


def start(seed=0, **kwargs):
    environment = make(SudokuSettings(**kwargs))
    environment.reset(seed=seed)
    return environment


def put(givens=GIVENS, **kwargs):
    """Environment with a given puzzle."""
    environment = start(**kwargs)
    environment._puzzle = Puzzle(givens, SOLUTION)
    environment._cells = list(givens)
    environment._paid = [0.0] * 16
    return environment


def test_correct_digit_and_solution_rewards():
    environment = put()
    assert environment.step("place 4 at row 1 col 4")[1:3] == (1.0, False)
    assert environment.step("place 1 at row 1 col 1")[1:3] == (1.0, False)
    _, reward, terminated, truncated, info = environment.step("place 3 at row 2 col 1")
    assert (reward, terminated, truncated) == (10.0, True, False)
    assert info == {"effective": True, "is_success": True, "is_right": True}
    with pytest.raises(EnvironmentFault, match="has ended"):
        environment.step("place 3 at row 2 col 1")


def test_legal_wrong_digit_pays_a_half():
    blank = (0, 0, *SOLUTION[2:4], 0, 0, *SOLUTION[6:8], 0, 0, *SOLUTION[10:])
    environment = put(blank)
    # Row 1 holds 3 and 4, column 1 holds 4: 1 and 2 are left for (1, 1), and 1 is correct.
    assert environment.step("place 2 at row 1 col 1")[1] == 0.5
    assert environment.step("place 1 at row 1 col 1")[1] == 0.5
    assert environment.step("place 2 at row 1 col 1")[1] == 0.0
    assert environment.step("place 1 at row 1 col 1")[1] == 0.0  # going back and forth earns nothing


@pytest.mark.parametrize(
    "action",
    [
        "place 2 at row 1 col 1",  # its row, column and box hold a 2
        "place 1 at row 1 col 2",  # given
        "place 2 at row 1 col 2",  # given, with the same digit
    ],
)
def test_illegal_placement_costs_and_changes_nothing(action):
    environment = put()
    before = environment.state_digest()
    _, reward, terminated, _, info = environment.step(action)
    assert (reward, terminated, info["effective"]) == (-0.1, False, False)
    assert environment.state_digest() == before
    assert environment.action_cost == -0.1


def test_both_forms_are_one_action():
    grammar = Placements(9)
    for text in ("place 5 at row 2 col 3", "2,3,5", " 2, 3 ,5\n", "Place 5 at  ROW 2 col 3"):
        assert grammar.read(text) == "place 5 at row 2 col 3"


@pytest.mark.parametrize(
    "text",
    ["", "place 5", "5 at row 2 col 3", "0,1,1", "1,1,10", "place 1 at row 10 col 1", "1 2 3", "1,2,3,4", "x" * 9999],
)
def test_anything_else_is_no_action(text):
    assert Placements(9).read(text) is None


@given(text=st.text())
def test_grammar_read_is_total_and_idempotent(text):
    grammar = Placements(4)
    action = grammar.read(text)
    assert action is None or grammar.read(action) == action


def test_admissible_placements_change_the_grid():
    environment = put(should_list_admissible=True, observation="compact")
    assert environment.render() == (
        ". 2 3 .\n. 4 1 2\n2 1 4 3\n4 3 2 1\n"
        "Admissible: place 1 at row 1 col 1, place 4 at row 1 col 4, place 3 at row 2 col 1"
    )


@given(seed=SEEDS)
@settings(max_examples=30, deadline=None)
def test_admissible_placements_are_the_effective_ones(seed):
    environment = start(seed, num_blanks=8)
    rng = random.Random(seed)
    for _ in range(12):
        if environment.is_success:
            break
        action = environment.random_action(rng)
        is_admissible = action in environment.actions
        assert environment.step(action)[4]["effective"] == is_admissible


def test_own_digits_are_marked():
    environment = put()
    environment.step("place 1 at row 1 col 1")
    assert environment.render() == "1* 2  |3  .\n.  4  |1  2\n------+------\n2  1  |4  3\n4  3  |2  1"


@given(seed=SEEDS)
@settings(max_examples=20, deadline=None)
def test_solution_wins_with_expected_return(seed):
    environment = start(seed)
    puzzle, total = environment.puzzle, 0.0
    for cell, digit in enumerate(puzzle.solution):
        if not puzzle.givens[cell]:
            total += environment.step(f"place {digit} at row {cell // 4 + 1} col {cell % 4 + 1}")[1]
    assert environment.is_success
    assert total == 5 * 1.0 + 10.0


def test_too_many_blanks_are_rejected():
    with pytest.raises(ValidationError, match="num_blanks = 11 is too many for size = 4"):
        SudokuSettings(num_blanks=11)
    assert SudokuSettings(size=9, num_blanks=54).num_blanks == 54
