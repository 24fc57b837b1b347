"""Token ids given to the learner: real turns agree, and anything that the learner gets wrong is found."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import starpo.ragen.runs.verify.tokens
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.filter import FilterConfig
from starpo.ragen.config.reward import RewardConfig
from starpo.ragen.envs.sokoban.environment import SokobanSettings
from starpo.ragen.learning.filter.select import select_groups
from starpo.ragen.learning.learners.data.trajectories import assemble
from starpo.ragen.learning.reward.compute import compute_rewards
from starpo.ragen.runs.verify.tokens import token_differences

SOKOBAN = SokobanSettings(generator="distance", min_solution=1, max_solution=3)
CONTEXTS = {
    "window": AgentConfig(prompt="state", context="window"),
    "full": AgentConfig(prompt="state", context="full"),
}


@pytest.fixture(params=CONTEXTS)
def tables(play_rollout, request) -> tuple[pa.Table, pa.Table, pa.Table]:
    turns = play_rollout(SOKOBAN, CONTEXTS[request.param]).turns
    rewards = compute_rewards(turns, RewardConfig())
    return turns, rewards, select_groups(turns, rewards, FilterConfig(keep=0.7))


def samples_of(tables) -> pa.Table:
    trajectories = assemble(*tables)
    return pa.table(
        {
            "trajectory_id": [t.trajectory_id for t in trajectories],
            "num_tokens": [t.num_response_tokens for t in trajectories],
        }
    )


def test_recorded_tokens_have_no_differences(tables):
    assert 0 < sum(tables[2]["kept"].to_pylist()) < 3
    assert list(token_differences(*tables)) == []
    assert list(token_differences(*tables, samples_of(tables))) == []


def test_truncated_context_ends_at_last_response(play_rollout):
    agent = AgentConfig(prompt="state", context="full")
    turns = play_rollout(SOKOBAN, agent, max_context_tokens=220).turns
    assert "truncated" in turns["status"].to_pylist()
    rewards = compute_rewards(turns, RewardConfig())
    config = FilterConfig(strategy="none", should_drop_zero_variance=False)
    assert list(token_differences(turns, rewards, select_groups(turns, rewards, config))) == []


FAULTS = {
    "token_ids": lambda s: replace(s, token_ids=np.append(s.token_ids[:-1], s.token_ids[-1] + 1)),
    "response_mask": lambda s: replace(s, response_mask=~s.response_mask),
    "behaviour_logprobs": lambda s: replace(s, behaviour_logprobs=s.behaviour_logprobs * np.float32(0.5)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_segment_is_found(tables, fault, monkeypatch):
    def faulty(*arguments):
        first, *others = assemble(*arguments)
        return [replace(first, segments=(FAULTS[fault](first.segments[0]), *first.segments[1:])), *others]

    monkeypatch.setattr(starpo.ragen.runs.verify.tokens, "assemble", faulty)
    [difference] = token_differences(*tables)
    segment = assemble(*tables)[0].segments[0]
    first = np.flatnonzero(segment.behaviour_logprobs)[0]
    place = {"token_ids": len(segment.token_ids) - 1, "response_mask": 0, "behaviour_logprobs": first}[fault]
    assert difference.endswith(f": {fault} differs at token {place}")
    assert difference.startswith("trajectory 'g")


def test_missing_and_reordered_trajectories_are_found(tables, monkeypatch):
    monkeypatch.setattr(starpo.ragen.runs.verify.tokens, "assemble", lambda *arguments: assemble(*arguments)[1:])
    [difference] = token_differences(*tables)
    assert "other trajectories" in difference
    monkeypatch.setattr(starpo.ragen.runs.verify.tokens, "assemble", lambda *arguments: assemble(*arguments)[::-1])
    [difference] = token_differences(*tables)
    assert "their order" in difference


def test_samples_of_other_lengths_are_found(tables):
    samples = samples_of(tables)
    lengths = samples["num_tokens"].to_pylist()
    wrong = samples.set_column(1, "num_tokens", [[lengths[0] + 1, *lengths[1:]]])
    assert len(list(token_differences(*tables, wrong))) == 1
    assert len(list(token_differences(*tables, samples.slice(0, samples.num_rows - 1)))) == 1
