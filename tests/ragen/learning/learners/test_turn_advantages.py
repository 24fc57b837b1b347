"""The advantage of each turn: as loops compute it from the tokens' advantages, for several estimators at once."""

import numpy as np
import pytest
import torch

from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.learning.learners.data.tokens import ResponseTokens
from starpo.ragen.learning.learners.measuring import able_to_measure, at_start, prepared_objectives
from starpo.ragen.learning.learners.turn_advantages import TurnAdvantages, turn_advantages
from tests.ragen.learning.learners.conftest import change, loaded

GRPO = UpdateConfig(advantage="grpo", num_minibatches=1)
CONFIGS = [
    GRPO,
    change(GRPO, advantage="turn_gae", gamma_turn=0.5, should_whiten=True),
    change(GRPO, advantage="gae", advantage_on="answer", gae_lambda=0.5),
]


@pytest.fixture(scope="module", params=["window", "full"])
def trajectories(request, make_trajectories):
    return make_trajectories(8, context=request.param, num_turns=3)


@pytest.fixture(scope="module")
def estimates(policy_folder, trajectories, context) -> TurnAdvantages:
    return turn_advantages(loaded(able_to_measure(CONFIGS), policy_folder), trajectories, context, CONFIGS)


def test_means_equal_loops_over_tokens(estimates, policy_folder, trajectories, context) -> None:
    tokens = ResponseTokens(trajectories)
    places = list(zip(tokens.trajectory_N.tolist(), tokens.turn_N.tolist(), strict=True))
    turns = list(dict.fromkeys(places))
    assert list(zip(estimates.trajectory.tolist(), estimates.turn.tolist(), strict=True)) == turns
    with at_start(loaded(able_to_measure(CONFIGS), policy_folder), trajectories, context) as inputs:
        prepared = [one for _, one in prepared_objectives(inputs, CONFIGS)]
    for row, config, one in zip(estimates.advantages, CONFIGS, prepared, strict=True):
        is_credited = tokens.mask(config.advantage_on).tolist()
        advantages = one.credit.advantages_N.double().tolist()
        for turn, mean in zip(turns, row.tolist(), strict=True):
            chosen = [a for a, place, ok in zip(advantages, places, is_credited, strict=True) if place == turn and ok]
            assert mean == pytest.approx(np.mean(chosen) if chosen else np.nan, nan_ok=True)
    values = prepared[1].start.columns["critic"].double().tolist()
    assert estimates.columns["critic"].tolist() == [values[places.index(turn)] for turn in turns]
    assert set(estimates.columns) == {"critic"}


def test_grpo_credits_all_turns_alike(estimates, trajectories) -> None:
    """Return minus the mean of the group, at every turn."""
    returns = np.array([one.normalised_return for one in trajectories])
    groups = [one.group_id for one in trajectories]
    for index, mean in zip(estimates.trajectory.tolist(), estimates.advantages[0].tolist(), strict=True):
        group = [returns[other] for other, name in enumerate(groups) if name == groups[index]]
        assert mean == pytest.approx(returns[index] - np.mean(group), abs=1e-6)


def test_implicit_rewards_are_summed(policy_folder, trajectories, context) -> None:
    istar = change(GRPO, advantage="istar")
    learner = loaded(able_to_measure([istar, GRPO]), policy_folder)
    estimates = turn_advantages(learner, trajectories, context, [istar, GRPO])
    with at_start(learner, trajectories, context) as inputs:
        (_, prepared), _ = prepared_objectives(inputs, [istar, GRPO])
    assert torch.allclose(estimates.columns["prm"].sum(), prepared.start.columns["prm"].double().sum())
    assert set(estimates.columns) == {"prm"}
    assert len(estimates.columns["prm"]) == len(estimates.turn)
