"""Claims about 2048, the cube and Sudoku: demonstrations are true in every observation form; false claims are found."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starpo.ragen.core.lookup import resolve
from starpo.ragen.envs import make
from starpo.ragen.envs.game_2048.environment import Game2048Settings
from starpo.ragen.envs.make import environment_type
from starpo.ragen.envs.rubik.environment import RubikSettings
from starpo.ragen.envs.sudoku.environment import SudokuSettings

FORMS = [
    Game2048Settings(),
    Game2048Settings(observation="compact"),
    RubikSettings(scramble=4),
    RubikSettings(observation="faces"),
    SudokuSettings(num_blanks=10),
    SudokuSettings(size=9, num_blanks=20, observation="compact", should_list_admissible=True),
    SudokuSettings(size=16, num_blanks=20),
]


def judge(name):
    return resolve(environment_type(name).claims)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_what_demonstrations_say_is_true(form):
    environment = make(form)
    demonstrate = resolve(environment.demonstrator)
    for seed in range(4):
        observation, _ = environment.reset(seed=seed, dynamics_seed=seed)
        rng = random.Random(seed)
        is_over, num_claims = False, 0
        while not is_over and num_claims < 100:
            demonstration = demonstrate(environment, 0.3, rng)
            found = judge(form.type)(observation, demonstration.think)
            assert len(found) >= 4
            assert all(claim.is_true for claim in found), found
            num_claims += len(found)
            for action in demonstration.actions:
                if not is_over:
                    observation, _, is_over, _, _ = environment.step(action)


EXPONENTS = "1 0 0 7\n1 0 2 0\n0 0 0 0\n4 3 1 1"
RIGHT_TURNED = "   WG\n   WG\nOO GY RR WB\nOO GY RR WB\n   YB\n   YB"
THREE_BLANKS = ". 2* 3 .\n. 4 1 2\n2 1 4 3\n4 3 2 1"


@pytest.mark.parametrize(
    ("name", "observation", "reasoning", "false"),
    [
        ("game_2048", EXPONENTS, "largest 7 rows 0 columns 1 free Up Down", ["rows", "free"]),
        ("rubik", RIGHT_TURNED, "R 2 R' 6 U 2", ["whole faces after turn"]),
        ("sudoku", THREE_BLANKS, "cell 1 1 row 2 3 . col . 2 4 box 2 . . left 1 3", ["box of cell", "left of cell"]),
        ("sudoku", THREE_BLANKS, "cell 5 1 row 2 . . col 2 . . box 2 . . left 1", ["cell"]),
    ],
)
def test_what_is_false_is_found(name, observation, reasoning, false):
    found = judge(name)(observation, reasoning)
    assert [claim.about for claim in found if not claim.is_true] == false


@pytest.mark.parametrize("observation", [EXPONENTS.replace("7", "x"), EXPONENTS[:-8], EXPONENTS.replace("\n", " ")])
def test_what_is_no_board_of_2048_is_not_judged(observation):
    assert judge("game_2048")(observation, "largest 7 rows 1 columns 1 free Up") == []


@pytest.mark.parametrize("name", ["game_2048", "rubik", "sudoku"])
@given(observation=st.text(max_size=80), reasoning=st.text(max_size=80))
def test_judging_never_raises(name, observation, reasoning):
    assert judge(name)(observation, reasoning) == []
