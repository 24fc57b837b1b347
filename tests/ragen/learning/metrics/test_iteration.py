import bz2
import math

import pytest

from starpo.ragen.config.filter import FilterConfig
from starpo.ragen.config.reward import RewardConfig
from starpo.ragen.core.errors import DataError
from starpo.ragen.learning.filter.select import select_groups
from starpo.ragen.learning.metrics.iteration import attempt_metrics, filter_metrics, reward_metrics, rollout_metrics
from starpo.ragen.learning.metrics.table import metric_series, metrics_table
from starpo.ragen.learning.reward.compute import compute_rewards
from starpo.schemas.datasets import METRICS, NO_RESPONSE

MALFORMED = {
    "format_ok": False,
    "status": "format_error",
    "think": None,
    "answer": None,
    "executed_actions": [],
    "action_rewards": [],
    "action_effective": [],
}


@pytest.fixture(scope="module")
def turns(make_turns):
    """Two groups of two. One trajectory succeeds, one is malformed, one has a full context, one times out."""
    return make_turns(
        [
            {
                "group_id": "a",
                "member": 0,
                "behaviour_logprobs": [-1.0, -2.0, -3.0],
                "response_ids": [3, 4, 5],
                "response": "one",
                "think": "four",
                "executed_actions": ["Up", "Up", "Left"],
                "action_effective": [True, False, True],
                "action_rewards": [-0.5, -0.5, 11.0],
                "success": True,
                "terminated": True,
            },
            {"group_id": "a", "member": 1, "turn": 0, "response": "two", "think": "to", "action_rewards": [-0.5]},
            {
                "group_id": "a",
                "member": 1,
                "turn": 1,
                **MALFORMED,
                "response": "two",
                "finish_reason": "length",
                "forfeited_actions": 3,
                "action_cost": -0.5,
                "truncated": True,
            },
            {"group_id": "b", "member": 0, "turn": 0, "response": "three", "think": "to", "action_rewards": [2.0]},
            {
                "group_id": "b",
                "member": 0,
                "turn": 1,
                **NO_RESPONSE,
                "status": "truncated",
                "truncated": True,
                "actions_left": 2,
                "action_cost": -0.5,
            },
            {"group_id": "b", "member": 1, **NO_RESPONSE, "status": "timeout", "truncated": True},
        ]
    )


def test_rollout_metrics_by_hand(turns):
    assert rollout_metrics(turns) == pytest.approx(
        {
            "rollout/num_trajectories": 4,
            "rollout/num_turns": 6,
            "rollout/num_truncated": 1,
            "rollout/truncated_share": 1 / 4,
            "rollout/num_env_error": 0,
            "rollout/env_error_share": 0,
            "rollout/num_timeout": 1,
            "rollout/timeout_share": 1 / 4,
            # Three valid trajectories of 1 + 2 + 2 turns, 3 + 1 + 1 actions, 0 + 3 + 0 forfeited.
            "rollout/success_rate": 1 / 3,
            "rollout/turns_mean": 5 / 3,
            "rollout/actions_mean": 5 / 3,
            "rollout/forfeited_actions_mean": 1.0,
            "rollout/limit_share": 2 / 3,
            "rollout/effective_action_share": 4 / 5,  # 2 of 3, 1 of 1, 1 of 1
            # Four responses: one is malformed and cut off at the maximum length.
            "rollout/format_ok": 3 / 4,
            "rollout/length_share": 1 / 4,
            "rollout/entropy": 9 / 9,  # (1 + 2 + 3) + 3 * (0.5 + 0.5) = 9 nats over 3 + 2 + 2 + 2 tokens
            "rollout/response_length_mean": 9 / 4,
            "rollout/response_length_max": 3,
            "rollout/distinct_response_share": 3 / 4,  # one, two, two, three
            "rollout/reasoning_characters_mean": (4 + 2 + 2) / 3,
            "rollout/distinct_reasoning_share": 2 / 3,  # four, to, to
            "rollout/compression_ratio": 17 / len(bz2.compress(b"one\ntwo\ntwo\nthree")),
        }
    )


def test_repeated_ngrams_are_counted(make_turns):
    echo, other = "go up and up and up and up", "one two three"  # five 4-grams, two of which are repeats
    turns = make_turns([{"group_id": g, "response": text} for g, text in (("a", echo), ("b", echo), ("c", other))])
    assert rollout_metrics(turns)["rollout/repeated_ngram_share"] == pytest.approx(2 / 5)


def test_repetitive_responses_compress_further(make_turns):
    words = [f"{n * 7919 % 10007} {n * 104729 % 10007}" for n in range(200)]
    varied = make_turns([{"group_id": "a", "member": n, "response": words[n]} for n in range(200)])
    echoes = make_turns([{"group_id": "a", "member": n, "response": words[0]} for n in range(200)])
    ratios = [rollout_metrics(turns)["rollout/compression_ratio"] for turns in (varied, echoes)]
    assert ratios[0] < 3 < 10 < ratios[1]


def test_groups_that_vary_differently_are_spread(make_turns):
    returns = {"a": [0.0, 2.0], "b": [0.0, 6.0]}  # stds 1 and 3
    turns = make_turns(
        [
            {"group_id": group, "member": member, "action_rewards": [value]}
            for group, values in returns.items()
            for member, value in enumerate(values)
        ]
    )
    metrics = reward_metrics(compute_rewards(turns, RewardConfig()), turns)
    assert (metrics["reward/in_group_std"], metrics["reward/in_group_std_spread"]) == (2.0, 1.0)


def test_reward_metrics_by_hand(turns):
    rewards = compute_rewards(turns, RewardConfig(format_penalty=-0.25))
    # Valid returns: a0 = -0.5 - 0.5 + 11 = 10; a1 = -0.5 - 0.25 - 3 * 0.5 = -2.25; b0 = 2 - 2 * 0.5 = 1.
    mean = (10 - 2.25 + 1) / 3
    variance = ((10 - mean) ** 2 + (-2.25 - mean) ** 2 + (1 - mean) ** 2) / 3
    assert reward_metrics(rewards, turns) == pytest.approx(
        {
            "reward/return_mean": mean,
            "reward/return_std": math.sqrt(variance),
            "reward/return_min": -2.25,
            "reward/return_max": 10,
            "reward/in_group_std": 6.125,  # only group a has two valid members: (10 + 2.25) / 2
            "reward/in_group_std_spread": 0.0,
            "reward/malformed_return_gap": -2.25 - (10 + 1) / 2,
            "reward/component/environment_mean": (10 - 0.5 + 2) / 3,
            "reward/component/format_mean": -0.25 / 3,
            "reward/component/forfeit_mean": (-1.5 - 1) / 3,
        }
    )


def test_filter_metrics_by_hand(make_turns):
    returns = {"a": [0.0, 2.0], "b": [0.0, 4.0], "c": [1.0, 1.0]}
    rows = [
        {"group_id": group, "member": member, "action_rewards": [value], "success": value > 0}
        for group, values in returns.items()
        for member, value in enumerate(values)
    ]
    turns = make_turns([*rows, {"group_id": "d", "status": "env_error"}])
    selection = select_groups(turns, compute_rewards(turns, RewardConfig()), FilterConfig(keep=0.25))
    # 25% of four groups is one: b, of std 2. Dropped with a valid trajectory: a (std 1) and c (std 0).
    assert filter_metrics(selection) == pytest.approx(
        {
            "filter/num_groups": 4,
            "filter/num_kept": 1,
            "filter/num_invalid": 1,
            "filter/num_zero_variance": 1,
            "filter/num_empty": 0,
            "filter/num_kept_trajectories": 2,
            "filter/kept_share": 1 / 4,
            "filter/zero_variance_share": 1 / 3,
            "filter/kept_score_mean": 2,
            "filter/dropped_score_mean": (1 + 0) / 2,
            "filter/kept_success": 0.5,
            "filter/dropped_success": (0.5 + 1) / 2,
        }
    )


def test_attempt_metrics_by_hand(make_turns):
    """b, d and e are eligible; the strategy keeps d and e; one group is wanted, and that is d."""
    returns = {"a": [1.0, 1.0], "b": [0.0, 0.1], "d": [0.0, 4.0], "e": [0.0, 2.0]}
    rows = [
        {"group_id": group, "member": member, "action_rewards": [value]}
        for group, values in returns.items()
        for member, value in enumerate(values)
    ]
    turns = make_turns([*rows, {"group_id": "f", "status": "env_error"}])
    config = FilterConfig(strategy="top_k", keep_count=2, num_wanted=1)
    selection = select_groups(turns, compute_rewards(turns, RewardConfig()), config)
    counts = attempt_metrics(selection, 3)
    assert counts == {"filter/num_attempts": 3, "filter/num_surplus": 1, "filter/num_outranked": 1}
    fates = filter_metrics(selection)
    assert [fates[f"filter/{name}"] for name in ("num_kept", "num_zero_variance", "num_invalid")] == [1, 1, 1]


def test_undefined_number_is_absent(make_turns):
    """A mean over no values is neither 0 nor NaN."""
    none = make_turns([])
    rewards = compute_rewards(none, RewardConfig())
    assert set(rollout_metrics(none)) == {
        f"rollout/num_{name}" for name in ("trajectories", "turns", "truncated", "env_error", "timeout")
    }
    assert reward_metrics(rewards, none) == {}
    empty = filter_metrics(select_groups(none, rewards, FilterConfig()))
    assert empty["filter/num_empty"] == 1.0
    assert not any("share" in name or "mean" in name for name in empty)


def test_metrics_table_and_back():
    first = metrics_table(0, "update", {"update/loss": 0.5, "update/gradient_norm": 2})
    second = metrics_table(3, "update", {"update/loss": 0.25})
    assert first.schema.equals(METRICS.schema, check_metadata=True)
    assert first.to_pylist()[1] == {"iteration": 0, "stage": "update", "name": "update/gradient_norm", "value": 2.0}
    series = metric_series([second, first])
    assert series == {"update/loss": {0: 0.5, 3: 0.25}, "update/gradient_norm": {0: 2.0}}
    assert list(series["update/loss"]) == [0, 3]  # ascending, although the later iteration came first


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_metrics_table_refuses_infinite_values(value):
    with pytest.raises(DataError, match=r"stage 'update' at iteration 7 are not finite: \{'update/loss'"):
        metrics_table(7, "update", {"update/loss": value, "update/fine": 1.0})


def test_greedy_trajectory_in_no_metric(make_turns):
    rows = [{"member": n, "action_rewards": [float(n)]} for n in range(2)]
    greedy = {"member": 2, "action_rewards": [9.0], "origin": "greedy", "success": True, "response": "x", "think": None}

    def metrics(rows):
        turns = make_turns(rows)
        rewards = compute_rewards(turns, RewardConfig())
        selection = select_groups(turns, rewards, FilterConfig())
        return rollout_metrics(turns) | reward_metrics(rewards, turns) | filter_metrics(selection)

    assert metrics(rows) == metrics([*rows, greedy])
