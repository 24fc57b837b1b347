import pytest
from hypothesis import given
from hypothesis import strategies as st

from starpo.ragen.core.errors import EnvironmentFault
from starpo.ragen.core.seeding import python_random
from starpo.ragen.envs.sokoban.board import ACTIONS, VOCABULARIES, Board
from starpo.ragen.envs.sokoban.rooms import reverse_play


@pytest.mark.parametrize(
    ("before", "action", "after"),
    [
        ("#P__#", "Right", "#_P_#"),  # a walk
        ("#P__#", "Left", "#P__#"),  # stopped by a wall
        ("#PX_O#", "Right", "#_PXO#"),  # a push
        ("#_PXO#", "Right", "#__P√#"),  # a push onto a target
        ("#_P√_#", "Right", "#__SX#"),  # a push off a target; the player stands on the target
        ("#PXX_OO#", "Right", "#PXX_OO#"),  # two boxes cannot be pushed
        ("#PX#O#", "Right", "#PX#O#"),  # a box cannot be pushed into a wall
        ("#XP_O#", "Right", "#X_PO#"),  # boxes are never pulled
        ("#S__#X#", "Right", "#OP_#X#"),  # a target reappears when the player leaves it
    ],
)
def test_rule_of_motion(before, action, after):
    def walled(row):
        return f"{'#' * len(row)}\n{row}\n{'#' * len(row)}"

    assert Board.from_text(walled(before)).after(action).to_text() == walled(after)


def test_up_and_down_go_by_rows():
    column = Board.from_text("###\n#_#\n#X#\n#P#\n#_#\n#O#\n###")
    assert column.after("Up").to_text() == "###\n#X#\n#P#\n#_#\n#_#\n#O#\n###"
    assert column.after("Down").to_text() == "###\n#_#\n#X#\n#_#\n#P#\n#O#\n###"


@given(seed=st.integers(0, 10_000), actions=st.lists(st.sampled_from(ACTIONS), max_size=30))
def test_things_neither_vanish_nor_enter_walls(seed, actions):
    start = board = reverse_play(python_random(seed), 7, 7, num_boxes=2, search_depth=20)
    for action in actions:
        board = board.after(action)
        assert len(board.boxes) == 2
        assert board.boxes <= board.floor
        assert board.player in board.floor - board.boxes
        assert (board.floor, board.targets) == (start.floor, start.targets)


@given(seed=st.integers(0, 10_000), vocabulary=st.sampled_from(sorted(VOCABULARIES)))
def test_text_and_board_are_inverse(seed, vocabulary):
    board = reverse_play(python_random(seed), 6, 7, num_boxes=2, search_depth=20)
    assert Board.from_text(board.to_text(VOCABULARIES[vocabulary]), VOCABULARIES[vocabulary]) == board


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("####\n#P_X_O#\n####", "rows of one length"),
        ("#####\n#P?_#\n#####", r"found also \['\?'\]"),
        ("#####\n#XO_#\n#####", "found 0 players, 1 boxes, 1 targets"),
        ("#####\n#PX_#\n#####", "found 1 players, 1 boxes, 0 targets"),
        ("#####\n_PXO#\n#####", "walls all around"),
    ],
)
def test_faulty_text_refused_with_fault(text, message):
    with pytest.raises(EnvironmentFault, match=message):
        Board.from_text(text)
