"""Advantages within and between subgoals: hand-computed numbers, and the estimator that they reduce to."""

import dataclasses

import numpy as np
import torch

from starpo.ragen.methods.segments.estimator import hierarchical_gae, names_subgoal
from tests.ragen.learning.learners.conftest import random_trajectory
from tests.ragen.learning.objectives.estimator_inputs import inputs_of


def hierarchical(rewards, subgoals, **settings):
    turns = [list(range(len(rewards[0])))]
    return dataclasses.replace(
        inputs_of(rewards, [[0.5] * len(rewards[0])], turns=turns, **settings),
        marks_BK=torch.tensor(subgoals, dtype=torch.float64),
        is_answer_BT=torch.zeros(1, len(rewards[0]), dtype=torch.bool),
    )


def test_by_hand():
    # HiPER's example: rewards 0 0 1, subgoals at turns 0 and 2, all values .5: low 0 0 .5, high .5 and .5
    inputs = hierarchical([[0, 0, 1]], [[True, False, True]])
    answers = dataclasses.replace(inputs, is_answer_BT=torch.ones(1, 3, dtype=torch.bool))
    assert hierarchical_gae(answers).advantages_BT.tolist() == [[0, 0, 0.5]]
    estimate = hierarchical_gae(inputs)
    assert estimate.advantages_BT.tolist() == [[0.5, 0, 0.5]]  # reasoning: high where a subgoal begins
    assert estimate.value_targets_BT.tolist() == [[0.5, 0.5, 1.0]]  # low + value


def test_begins_with_first_participating_turn():
    inputs = hierarchical([[0, 0, 1]], [[False, False, False]], lambda_turn=0.5)
    later = dataclasses.replace(inputs, mask_BT=torch.tensor([[False, True, True]]))
    # the second turn is the first with tokens, so its reasoning gets the high advantage, 1 - .5; low: 0 + .5 * .5 = .25
    assert hierarchical_gae(later).advantages_BT.tolist() == [[0, 0.5, 0.5]]


def test_subgoals_are_read_from_the_reasoning():
    reasoning = np.array(["first <subgoal>the box</subgoal>", "on", None, "<subgoal>"], dtype=object)
    trajectory = dataclasses.replace(random_trajectory(0, num_turns=4), reasoning=reasoning)
    assert names_subgoal(trajectory) == [True, False, False, True]
