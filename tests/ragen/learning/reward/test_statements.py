"""'grounding' and 'world_model': hand-computed rewards, and attempts to earn them without looking at the state."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from starpo.ragen.config.reward import RewardConfig
from starpo.ragen.learning.reward.compute import compute_rewards
from starpo.ragen.learning.reward.statements import grounding, world_model

BOARD = "#####\n#_X_#\n#_P_#\n#__O#\n#####"  # the player at (2, 2), the box above it, the target below to the right
MOVED = "#####\n#_X_#\n#__P#\n#__O#\n#####"  # one step to the right: the box above to the left, the target below
OTHER = "#####\n#P__#\n#_X_#\n#__O#\n#####"  # the box and the target below to the right
TRUE = "The box is directly above the player. The target is below and to the right of the player."
HALF = "The box is directly above the player. The target is below and to the left of the player."
AFTER = "The box is above and to the left of the player. The target is directly below the player."
ALL_SIDES = ". ".join(
    f"The {thing} is {side} the player"
    for thing in ("box", "target")
    for side in ("directly above", "directly below", "above and left of", "below and right of", "below and left of")
)


def turn(observed: str = TRUE, predicted: str = "", **columns):
    think = f"<observation>{observed}</observation><reasoning>r</reasoning><prediction>{predicted}</prediction>"
    return {"env": "sokoban", "observation": BOARD, "think": think, **columns}


def config(name: str = "grounding", **options) -> RewardConfig:
    return RewardConfig(components=[name], options={name: options})


def test_grounding_uses_answered_observation(make_turns):
    rows = [turn(TRUE), turn(HALF, member=1), turn(AFTER, member=2), turn("", member=3)]
    # Scores 1, .5, 0 and 0, each times .5; no text is given for two observations.
    np.testing.assert_array_equal(grounding(make_turns(rows), config()), [0.5, 0.25, 0.0, 0.0])
    np.testing.assert_array_equal(grounding(make_turns(rows), config(reward=2.0)), [2.0, 1.0, 0.0, 0.0])


def test_world_model_uses_next_observation(make_turns):
    rows = [
        turn(predicted=AFTER, turn=0, executed_actions=["Up"]),  # the stored observation counts, not the action
        turn(predicted=HALF, turn=1, observation=MOVED, executed_actions=["Up"]),
    ]
    np.testing.assert_array_equal(world_model(make_turns(rows), config("world_model")), [0.5, 0.0])
    shuffled = make_turns(rows[::-1])
    np.testing.assert_array_equal(world_model(shuffled, config("world_model")), [0.0, 0.5])


def test_frequent_text_free_without_known_state(make_turns):
    lake = {"env": "frozen_lake", "executed_actions": ["Down"], "info": "{}"}
    statement = "The goal is directly above the player."
    rows = [
        turn(predicted=statement, member=m, observation=o, **lake)
        for m, o in enumerate(("P_O\n_O_\n__G", "P__\n_O_\n__G"))
    ]
    np.testing.assert_array_equal(world_model(make_turns(rows), config("world_model")), [0.0, 0.0])


def test_state_after_last_turn_is_derived(make_turns):
    rows = [turn(predicted=AFTER, executed_actions=["Right"]), turn(predicted=AFTER, member=1, executed_actions=["Up"])]
    np.testing.assert_array_equal(world_model(make_turns(rows), config("world_model")), [0.5, 0.0])
    lake = {"env": "frozen_lake", "observation": "P_O\n_O_\n__G", "executed_actions": ["Down"]}
    statement = "The goal is below and right of the player. The hole is above and right of the player. "
    statement += "The hole is directly right of the player."
    slid = [
        turn(predicted=statement, member=m, **lake, info=i) for m, i in enumerate([json.dumps({"cell": [1, 0]}), "{}"])
    ]
    np.testing.assert_array_equal(world_model(make_turns(slid), config("world_model")), [0.5, 0.0])


def test_only_well_formed_response_is_paid(make_turns):
    rows = [turn(format_ok=False, status="format_error"), turn(think=None, member=1), turn(think=TRUE, member=2)]
    np.testing.assert_array_equal(grounding(make_turns(rows), config()), [0.0, 0.0, 0.0])


def test_unreadable_statements_pay_nothing(make_turns):
    np.testing.assert_array_equal(grounding(make_turns([turn(observation="?")]), config()), [0.0])
    assert grounding(make_turns([]), config()).shape == (0,)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n",
        BOARD,
        "where things are now",
        "the THING is above and to the left of the player; the THING is directly below the player.",
        "Your available actions are: Up, Down, Left, Right",
        ALL_SIDES,
        "The box is above or below the player. The target is somewhere.",
        "The box is above the player. The box is below the player. The target is left of the player.",
        "The box is above and below the player. The target is left and right of the player.",
    ],
    ids=lambda text: text[:20],
)
def test_blind_statements_pay_nothing(make_turns, text):
    alone = make_turns([turn(text, text)])
    assert grounding(alone, config()).tolist() == world_model(alone, config("world_model")).tolist() == [0.0]
    everywhere = [turn(text, text, member=m, observation=board) for m, board in enumerate((BOARD, MOVED, OTHER))]
    assert (grounding(make_turns(everywhere), config()) <= 0).all()


def test_repeated_true_statement_pays_less(make_turns):
    paid = [grounding(make_turns([turn(TRUE * times)]), config())[0] for times in (1, 2, 9)]
    assert paid == pytest.approx([0.5, 0.5 * 2 / 3, 0.5 * 0.2])


def test_false_batch_wide_text_is_penalised(make_turns):
    """TRUE scores 1 on BOARD, 0 on MOVED and .5 on OTHER (the target); for scores below .7 it gets -.1."""
    boards = [BOARD, MOVED, OTHER]
    rows = [turn(TRUE, member=member, observation=board) for member, board in enumerate(boards)]
    spaced = [turn(TRUE.upper().replace(" ", "  "), member=9, observation=MOVED)]
    honest = [turn(HALF, member=8)]
    rewards = grounding(make_turns(rows + spaced + honest), config())
    np.testing.assert_allclose(rewards, [0.5, -0.1, -0.1, -0.1, 0.25])
    np.testing.assert_allclose(grounding(make_turns(rows), config(frequent_texts=0)), [0.5, 0.0, 0.25])
    np.testing.assert_allclose(grounding(make_turns(rows), config(frequent_penalty=-1.0)), [0.5, -1.0, -1.0])
    np.testing.assert_allclose(grounding(make_turns(rows), config(frequent_score=0.5)), [0.5, -0.1, 0.25])


def test_group_may_repeat_statements_of_board(make_turns):
    rows = [turn(HALF, member=member) for member in range(8)]
    np.testing.assert_array_equal(grounding(make_turns(rows), config()), [0.25] * 8)


def test_only_so_many_texts_are_frequent(make_turns):
    texts = {"the box is nowhere": (BOARD, MOVED, OTHER), "i see nothing": (BOARD, MOVED)}
    rows = [
        turn(text, member=member, group_id=text, observation=board)
        for text, boards in texts.items()
        for member, board in enumerate(boards)
    ]
    np.testing.assert_allclose(grounding(make_turns(rows), config(frequent_texts=1)), [-0.1] * 3 + [0.0] * 2)
    np.testing.assert_allclose(grounding(make_turns(rows), config(frequent_texts=2)), [-0.1] * 5)


@pytest.mark.ci
@given(texts=st.lists(st.sampled_from([TRUE, HALF, AFTER, "", ALL_SIDES]) | st.text(max_size=20), max_size=6))
def test_payments_bounded_and_order_independent(make_turns, texts):
    rows = [
        turn(text, member=member, observation=(BOARD, MOVED, OTHER)[member % 3]) for member, text in enumerate(texts)
    ]
    rewards = grounding(make_turns(rows), config())
    assert ((rewards >= -0.1) & (rewards <= 0.5)).all()
    np.testing.assert_array_equal(grounding(make_turns(rows[::-1]), config())[::-1], rewards)


def test_statement_rewards_add_to_others(make_turns):
    reward = RewardConfig(components=["environment", "grounding", "world_model"])
    rewards = compute_rewards(make_turns([turn(TRUE, AFTER, executed_actions=["Right"])]), reward)
    assert rewards["component_values"][0].as_py() == [-0.1, 0.5, 0.5]
