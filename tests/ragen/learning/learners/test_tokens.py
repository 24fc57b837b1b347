"""Flat order of response tokens, its rectangle, and the placement of rewards."""

from itertools import chain

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from starpo.ragen.core.errors import LearnerError
from starpo.ragen.learning.learners.data.tokens import ResponseTokens
from starpo.ragen.learning.learners.data.trajectories import Segment, Trajectory


def trajectory(turn_lengths: list[int], rewards: list[float], *, shift: float = 0.0, window: bool = True) -> Trajectory:
    """Trajectory with one prompt token before each response; a turn of length 0 has no response."""
    pieces = [([False] + [True] * n, [-1] + [k] * n) for k, n in enumerate(turn_lengths) if n]
    if not window and pieces:
        pieces = [tuple(list(chain(*parts)) for parts in zip(*pieces, strict=True))]
    segments = tuple(
        Segment(np.arange(len(m)), np.array(m), np.zeros(len(m), np.float32), np.array(t), np.zeros(len(m), np.int8))
        for m, t in pieces
    )
    total = float(sum(rewards))
    turns = np.arange(len(rewards)), np.zeros(len(rewards), bool), np.ones(len(rewards))
    return Trajectory("t", "g", segments, np.array(rewards, dtype=float), total, total + shift, *turns)


@pytest.mark.parametrize("window", [True, False])
def test_reward_is_on_turns_last_token(window):
    trajectories = [trajectory([2, 1, 3], [1, 2, 3], window=window), trajectory([1, 2], [-1, 0], window=window)]
    tokens = ResponseTokens(trajectories)
    assert tokens.rewards(trajectories).tolist() == [0, 1, 2, 0, 0, 3, -1, 0, 0]
    assert tokens.rectangle(tokens.turn_N + 1).tolist() == [[1, 1, 2, 3, 3, 3], [1, 2, 2, 0, 0, 0]]
    assert tokens.lengths_B.tolist() == [6, 3]


def test_empty_turn_reward_moves_to_predecessor():
    """No reward is lost because its turn has no tokens."""
    trajectories = [trajectory([2, 0, 1, 0], [1, 10, 2, 20]), trajectory([0, 2], [5, 1])]
    tokens = ResponseTokens(trajectories)
    # 1 + 10 at the end of turn 0; 2 + 20 at turn 2; 5 at the first token, because no token precedes its turn
    assert tokens.rewards(trajectories).tolist() == [0, 11, 22, 5, 1]


def test_normalisation_shift_goes_to_last_token():
    trajectories = [trajectory([2, 2], [1, 2], shift=-0.5)]
    assert ResponseTokens(trajectories).rewards(trajectories).tolist() == [0, 1, 0, 1.5]


def test_onto_moves_values_to_masked_tokens():
    """In trajectories of four, two and three tokens; the second has none in the mask, so its last token gets all."""
    tokens = ResponseTokens([trajectory([length], [0]) for length in (4, 2, 3)])
    mask_N = torch.tensor([False, False, True, False, False, False, False, True, False])
    moved_N = tokens.onto(mask_N, torch.tensor([1, 2, 4, 8, 16, 32, 64, 128, 256]))
    assert moved_N.tolist() == [0, 0, 15, 0, 0, 48, 0, 448, 0]


@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4), min_size=1, max_size=5))
def test_rewards_sum_and_rectangles_round_trip(turn_lengths):
    trajectories = [trajectory(t, [float(k + 1) for k in range(len(t))], shift=0.25) for t in turn_lengths]
    tokens = ResponseTokens(trajectories)
    earned_B = tokens.sums(tokens.rewards(trajectories))
    for index, one in enumerate(trajectories):
        assert earned_B[index] == (one.normalised_return if one.segments else 0)
    values_N = torch.arange(1.0, len(tokens) + 1)
    assert torch.equal(tokens.flat(tokens.rectangle(values_N)), values_N)


def test_response_without_prompt_is_rejected():
    bad = Segment(
        np.array([1, 2]), np.array([True, True]), np.zeros(2, np.float32), np.array([0, 0]), np.zeros(2, np.int8)
    )
    with pytest.raises(LearnerError, match="'odd' has a response at the very start"):
        ResponseTokens(
            [Trajectory("odd", "g", (bad,), np.zeros(1), 0.0, 0.0, np.zeros(1, int), np.zeros(1, bool), np.ones(1))]
        )
