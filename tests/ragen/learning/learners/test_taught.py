"""A teacher's stored log-probs in an update: aligned with the tokens, added to the advantages, measured."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import torch

from starpo.ragen.agents.policy.load import load_policy
from starpo.ragen.config.update import OptimiserConfig, UpdateConfig
from starpo.ragen.core.errors import LearnerError
from starpo.ragen.learning.learners.data.taught import teacher_logprobs, top_tokens, with_teacher, with_top_tokens
from starpo.ragen.learning.learners.data.tokens import ResponseTokens
from starpo.ragen.learning.learners.ledger import Ledger
from starpo.ragen.learning.learners.measuring import initial_gradient
from starpo.ragen.learning.learners.policy_loss import PolicyLoss
from starpo.ragen.learning.learners.preparation import prepare, score_start
from starpo.schemas.datasets import TEACHER_LOGPROBS, TEACHER_TOP_TOKENS
from tests.ragen.learning.learners.conftest import CONTEXT, change, loaded

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


TOP_K = UpdateConfig(
    advantage="reinforce", distillation="reverse_kl", distillation_coefficient=2.0, reward_coefficient=0.0,
    aggregation="token_mean", num_minibatches=1,
)  # fmt: skip
CANDIDATES = [7, 8, 9, 30]
PROBABILITIES = np.array([0.7, 0.2, 0.05, 0.01])


def named(trajectories, num_ids: int = 4) -> pa.Table:
    """What a teacher finds most probable, everywhere the same, rows in reverse."""
    rows = [
        {"trajectory_id": one.trajectory_id, "group_id": one.group_id, "turn": turn}
        | {"token_ids": CANDIDATES[:num_ids] * count, "logprobs": np.log(PROBABILITIES[:num_ids]).tolist() * count}
        for one in trajectories
        for part in one.segments
        for turn, count in zip(*np.unique(part.turn[part.response_mask], return_counts=True), strict=True)
    ]
    return pa.Table.from_pylist(rows[::-1], schema=TEACHER_TOP_TOKENS.schema)


def taught(trajectories):
    return with_top_tokens(with_teacher(trajectories, scored(trajectories, -0.5)), named(trajectories))


def test_top_tokens_follow_the_tokens(make_trajectories) -> None:
    trajectories = make_trajectories(3, num_turns=2)
    ids_NK, logprobs_NK = top_tokens(taught(trajectories))
    assert ids_NK.tolist() == [CANDIDATES] * len(ResponseTokens(trajectories))
    torch.testing.assert_close(logprobs_NK[0].exp().double(), torch.from_numpy(PROBABILITIES))


@pytest.mark.parametrize(
    ("micro_batch_tokens", "divergence"), [(16, "reverse_kl"), (512, "reverse_kl"), (64, "forward_kl")]
)
def test_gradient_is_that_of_single_contexts(policy_folder, make_trajectories, micro_batch_tokens, divergence) -> None:
    trajectories = make_trajectories(4)
    config = change(TOP_K, micro_batch_tokens=micro_batch_tokens, distillation=divergence)
    gradient = initial_gradient(loaded(config, policy_folder), taught(trajectories), CONTEXT)
    model, _ = load_policy(policy_folder)
    total, num_tokens = torch.zeros(()), 0
    for part in (part for one in trajectories for part in one.segments):
        logprobs_TV = model(input_ids=torch.from_numpy(part.token_ids)[None]).logits[0].log_softmax(-1)
        for place in np.flatnonzero(part.response_mask) - 1:
            pi = logprobs_TV[place].exp()[CANDIDATES]
            both = torch.cat([pi, 1 - pi.sum()[None]]), torch.tensor([*PROBABILITIES, 1 - PROBABILITIES.sum()])
            one, other = both if divergence == "reverse_kl" else both[::-1]
            total = total + (one * (one / other).log()).sum()
            num_tokens += 1
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    expected = torch.autograd.grad(2.0 * total / num_tokens, parameters)
    torch.testing.assert_close(gradient, torch.cat([one.flatten() for one in expected]).float(), atol=1e-5, rtol=1e-4)


def initial_loss(learner, trajectories) -> float:
    """Loss of all tokens as one mini-batch, before a step."""
    with learner.at_start(trajectories, CONTEXT) as inputs:
        batches = inputs.micro_batches()
        given = prepare(inputs, score_start(inputs, batches, with_collision=False)).loss_inputs
        is_in_N = torch.ones(len(inputs.tokens), dtype=torch.bool)
        loss = PolicyLoss.over(inputs, given, is_in_N, Ledger(inputs.tokens, inputs.runner.device))
        with torch.no_grad():
            return sum(float(loss(batch)[0]) for batch in batches)


def test_policy_moves_towards_the_teacher(policy_folder, make_trajectories) -> None:
    trajectories = taught(make_trajectories(8))
    config = change(TOP_K, optimiser=OptimiserConfig(type="adamw", learning_rate=1e-2))
    learner, losses = loaded(config, policy_folder), []
    for step in range(3):
        losses.append(initial_loss(learner, trajectories))
        assert learner.update(trajectories, replace(CONTEXT, iteration=step)).metrics["update/advantage_std"] == 0
    assert losses == sorted(losses, reverse=True)
    assert losses[2] < losses[0] - 0.01


def test_tokens_without_names_are_refused(policy_folder, make_trajectories) -> None:
    trajectories = make_trajectories(2)
    nameless = with_teacher(trajectories, scored(trajectories, 0.0))
    with pytest.raises(LearnerError, match="named 0 most probable tokens for the"):
        loaded(TOP_K, policy_folder).update(nameless, CONTEXT)
    partly = with_top_tokens(nameless, named(trajectories[:1], 3))
    with pytest.raises(LearnerError, match=r"for the \d+ response tokens of trajectory 't\d', and the diverg"):
        loaded(TOP_K, policy_folder).update(partly, CONTEXT)
