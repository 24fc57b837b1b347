"""The pace of a run from counted tokens and given speeds, by hand."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from starpo.flows.presets import preset
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.learning.examples import Example
from starpo.ragen.trial.pace import Sample, Speed, pace

SPEED = Speed(read_s=1, step_s=10, row_s=100, num_shards=2, trained_s=3, tuned_s=5, tuned_step_s=16, row_tokens=64)


def context(prompt: list[int], response: list[int]) -> Example:
    return Example(np.array(prompt + response), np.array([False] * len(prompt) + [True] * len(response)))


GROUP = Sample([context([1, 2], [3, 4]), context([1, 2], [3, 5])], 2, [2, 2])
"""Distinct are two tokens of the prompt and three of responses."""


def config(**settings: Any) -> StarPOConfig:
    rollout = {"num_groups": 4, "group_size": 2, "shard_groups": 2, "max_response_tokens": 8}
    named = {f"rollout.{name}": value for name, value in rollout.items()} | {"update.num_minibatches": 1}
    return preset("smoke", named | {name.replace("__", "."): value for name, value in settings.items()})


def test_a_shard_takes_what_its_tokens_and_steps_take() -> None:
    """Two groups a shard: 2 (2 + 300) + 2 steps of 10; both shards at a time, 8 episodes."""
    found = pace(config(), SPEED, GROUP)
    assert found.episode_s == (2 * (2 * 1 + 3 * 100) + 2 * 10) / 8
    assert pace(config(), replace(SPEED, num_shards=1), GROUP).episode_s == 2 * found.episode_s
    assert found.pass_s == 2.5 * 3  # one row of five tokens for two episodes
    assert found.example_s == 0


def test_all_responses_may_be_as_long_as_the_longest() -> None:
    """Of three tokens and one, two in the mean, three are distinct; if both have three, half as many again."""
    sample = Sample([context([1, 2], [3, 4, 5]), context([1, 2], [3])], 2, [3, 1])
    as_is, longest = (pace(config(), SPEED, sample, is_longest=is_longest) for is_longest in (False, True))
    assert as_is.episode_s == (2 * (2 * 1 + 3 * 100) + 3 * 10) / 8
    assert longest.episode_s == pytest.approx((2 * (2 * 1 + 3 * 1.5 * 100) + 3 * 10) / 8)
    assert longest.pass_s == pytest.approx(as_is.pass_s * (2 + 4.5) / 5)


def test_fine_tuning_shares_prefixes_too() -> None:
    tuned = {
        "type": "pretrained",
        "name_or_path": "nobody/none",
        "fine_tuning": {"micro_batch_tokens": 64, "batch_size": 4},
    }
    found = pace(config(policy=tuned), SPEED, GROUP, GROUP)
    assert found.example_s == (5 + 1) / 2 * 5 + 16 / 4  # one row, a token for the part without rows, a share of a step


def test_contexts_of_other_mini_batches_share_nothing() -> None:
    assert GROUP.trained_tokens(64, 64) == 2.5
    assert GROUP.trained_tokens(64, 64, num_minibatches=2) == 4
    assert GROUP.trained_tokens(64, row_tokens=0) == 4


def test_copies_of_what_was_played_share_the_prompt_alone(make_turns: Callable[..., pa.Table]) -> None:
    rows = [
        {"trajectory_id": "a", "prompt_ids": [1, 2], "response_ids": [3, 4]},
        {"trajectory_id": "b", "prompt_ids": [1, 2], "response_ids": [3, 5, 6]},
        {"trajectory_id": "b", "turn": 1, "is_context_start": False, "prompt_ids": [7], "response_ids": [8]},
        {"trajectory_id": "c", "prompt_ids": [1, 2], "response_ids": [], "status": "truncated"},
    ]
    played = Sample.played(make_turns(rows), 3)
    assert (played.num_episodes, played.num_turns, len(played.contexts)) == (4, 1.5, 4)
    assert played.response_lengths == [2, 3, 1, 2, 3, 1]
    assert played.num_tokens == (2 + 2, 2 * 5), "the message of the second turn follows another response"


def test_a_policy_writes_more_variously_than_its_demonstrator() -> None:
    alike = Sample([context([1, 2], [3, 4, 5, 6])] * 8, 8, [4] * 8)
    assert alike.num_tokens == (2, 4)
    assert alike.varied().num_tokens == (2, 4 + 2 * 2), "two of eight have a second half of their own"
