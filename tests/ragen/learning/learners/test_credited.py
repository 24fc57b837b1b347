"""Measured credit in an update: aligned with the turns, the advantages of the loss, refused where it is missing."""

import pyarrow as pa
import pytest
import torch

from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.core.errors import LearnerError
from starpo.ragen.learning.learners.credit import assign_credit
from starpo.ragen.learning.learners.data.credited import with_credits
from starpo.ragen.learning.learners.data.tokens import ResponseTokens
from starpo.ragen.learning.learners.models.scoring import Scores
from starpo.ragen.learning.objectives.monte_carlo import true_advantages

MEASURED = UpdateConfig(advantage="monte_carlo", advantage_on="all")


def credits_of(trajectories) -> pa.Table:
    """Credits in which turn k of trajectory i has the advantage i + k / 10, rows in reverse."""
    rows = [
        {"trajectory_id": trajectory.trajectory_id, "turn": turn, "advantage": index + turn / 10}
        for index, trajectory in enumerate(trajectories)
        for turn in range(len(trajectory.turn_rewards))
    ]
    return pa.Table.from_pylist(rows[::-1])


def test_advantages_follow_the_turns(make_trajectories) -> None:
    trajectories = make_trajectories(4, num_turns=3)
    tokens = ResponseTokens(trajectories)
    unknown = Scores(*torch.full((2, len(tokens)), torch.nan))
    credited = with_credits(trajectories, credits_of(trajectories))
    advantages_N = assign_credit(credited, tokens, MEASURED, unknown, {}).advantages_N
    torch.testing.assert_close(advantages_N, tokens.trajectory_N + tokens.turn_N / 10)


def test_missing_turn_is_refused(make_trajectories) -> None:
    trajectories = make_trajectories(2, num_turns=3)
    credits = credits_of(trajectories)
    with pytest.raises(
        LearnerError, match=f"have 2 turns of trajectory '{trajectories[1].trajectory_id}', which has 3"
    ):
        with_credits(trajectories, credits[1:])
    assert with_credits(trajectories[:1], credits)[0].true_advantages.tolist() == [0.0, 0.1, 0.2]


def test_unmeasured_credit_is_refused(make_trajectories) -> None:
    with pytest.raises(LearnerError, match=r"was not measured, and update\.advantage = 'monte_carlo' trains on it"):
        true_advantages(make_trajectories(1)[0])
