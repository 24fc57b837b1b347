"""A teacher's stored log-probs in an update: aligned with the tokens, added to the advantages, measured."""

import pyarrow as pa
import pytest
import torch

from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.core.errors import LearnerError
from starpo.ragen.learning.learners.data.taught import teacher_logprobs, with_teacher
from starpo.ragen.learning.learners.data.tokens import ResponseTokens
from starpo.schemas.datasets import TEACHER_LOGPROBS
from tests.ragen.learning.learners.conftest import CONTEXT, loaded

ALONE = UpdateConfig(advantage="reinforce", distillation_coefficient=2.0, reward_coefficient=0.0, num_minibatches=1)


def scored(trajectories, shift: float) -> pa.Table:
    """What a teacher says that gives every token the behaviour's log-prob plus `shift`, rows in reverse."""
    rows = []
    for trajectory in trajectories:
        for turn in sorted({int(t) for part in trajectory.segments for t in part.turn if t >= 0}, reverse=True):
            logprobs = [
                float(value) + shift
                for part in trajectory.segments
                for value in part.behaviour_logprobs[part.response_mask & (part.turn == turn)]
            ]
            names = {"trajectory_id": trajectory.trajectory_id, "group_id": trajectory.group_id, "turn": turn}
            rows.append(names | {"logprobs": logprobs, "is_mode": [True] * len(logprobs), "num_hint_tokens": 0})
    return pa.Table.from_pylist(rows, schema=TEACHER_LOGPROBS.schema)


def test_column_follows_the_tokens(make_trajectories) -> None:
    trajectories = make_trajectories(4, num_turns=3)
    taught = with_teacher(trajectories, scored(trajectories, -0.5))
    expected = ResponseTokens(trajectories).behaviour_logprobs_N - 0.5
    torch.testing.assert_close(teacher_logprobs(taught), expected)


def test_teacher_alone_makes_the_advantages(policy_folder, make_trajectories) -> None:
    trajectories = make_trajectories(4)
    learner = loaded(ALONE, policy_folder)
    with learner.at_start(trajectories, CONTEXT) as inputs:
        old_N = inputs.score(inputs.policy, inputs.micro_batches()).logprobs_N
    taught = with_teacher(trajectories, scored(trajectories, 0.25))
    result = loaded(ALONE, policy_folder).update(taught, CONTEXT)
    tokens = ResponseTokens(trajectories)
    gap_N = (tokens.behaviour_logprobs_N + 0.25 - old_N).double()
    expected_B = 2 * tokens.sums(gap_N) / tokens.lengths_B.clamp(min=1)
    assert result.samples["advantage"].to_pylist() == pytest.approx(expected_B.tolist(), abs=1e-5)
    assert result.metrics["update/teacher_kl"] == pytest.approx(-float(gap_N.mean()), abs=1e-6)


@pytest.mark.parametrize("missing", [0, 1])
def test_other_rollout_is_refused(make_trajectories, missing: int) -> None:
    trajectories = make_trajectories(2)
    table = scored(trajectories, 0.0)
    with pytest.raises(
        LearnerError, match=r"scored 0 response tokens of trajectory .* expected its log-probs of the sa"
    ):
        with_teacher(
            trajectories,
            table.filter(
                pa.array([row != trajectories[missing].trajectory_id for row in table["trajectory_id"].to_pylist()])
            ),
        )


def test_update_without_a_teacher_is_refused(policy_folder, make_trajectories) -> None:
    with pytest.raises(LearnerError, match="has no log-probs of a teacher"):
        loaded(ALONE, policy_folder).update(make_trajectories(2), CONTEXT)
