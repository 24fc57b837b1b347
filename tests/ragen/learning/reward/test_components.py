import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from starpo.ragen.config.reward import RewardConfig
from starpo.ragen.config.reward_components import OverlongOptions
from starpo.ragen.core.lookup import load
from starpo.ragen.core.registry import ENVIRONMENTS
from starpo.ragen.learning.reward.components import (
    environment_reward,
    forfeited_actions,
    format_penalty,
    overlong_penalty,
)
from starpo.ragen.learning.reward.compute import compute_rewards
from starpo.schemas.datasets import NO_RESPONSE

ACTION_COSTS = sorted({load(ENVIRONMENTS, name).action_cost for name in ENVIRONMENTS} | {0.0, -0.1, -2.5})

NOTHING_DONE = NO_RESPONSE.keys() - {"prompt_ids", "response_ids", "behaviour_logprobs", "finish_reason"}
MALFORMED = {name: NO_RESPONSE[name] for name in NOTHING_DONE} | {"status": "format_error"}
TRUNCATED = {**NO_RESPONSE, "status": "truncated"}


def test_environment_reward_sums_turn_actions(make_turns):
    turns = make_turns(
        [
            {"turn": 0, "executed_actions": ["Up", "Left"], "action_rewards": [-0.25, 1.0]},  # -0.25 + 1 = 0.75
            {"turn": 1, **MALFORMED},  # nothing executed: 0
        ]
    )
    np.testing.assert_array_equal(environment_reward(turns, RewardConfig()), [0.75, 0.0])


def test_format_penalty_is_for_responses_only(make_turns):
    turns = make_turns([{"turn": 0}, {"turn": 1, **MALFORMED}, {"turn": 2, **TRUNCATED}])
    np.testing.assert_array_equal(format_penalty(turns, RewardConfig(format_penalty=-0.5)), [0.0, -0.5, 0.0])


def test_forfeit_prices_forfeited_actions(make_turns):
    turns = make_turns(
        [
            {"turn": 0, "action_cost": -0.5},
            {"turn": 1, **MALFORMED, "forfeited_actions": 3, "action_cost": -0.5},  # 3 * -0.5 = -1.5
            {"turn": 2, **TRUNCATED, "actions_left": 4, "action_cost": -0.5},  # all 4 left: 4 * -0.5 = -2
        ]
    )
    np.testing.assert_array_equal(forfeited_actions(turns, RewardConfig()), [0.0, -1.5, -2.0])


def test_nothing_forfeited_is_plain_zero(make_turns):
    values = forfeited_actions(make_turns([{"forfeited_actions": 0, "action_cost": -0.1}]), RewardConfig())
    assert not np.signbit(values).any()


def _overlong(make_turns, lengths: list[int], **settings) -> list[float]:
    rows = [{"turn": turn, "response_ids": [3] * length} for turn, length in enumerate(lengths)]
    config = RewardConfig(components=["overlong"], options={"overlong": settings})
    return overlong_penalty(make_turns(rows), config).tolist()


def test_overlong_prices_last_tokens(make_turns):
    """No penalty up to 512 - 128 = 384 tokens, then 1 / 128 per token up to 512; constant beyond (DAPO's equation)."""
    penalties = _overlong(make_turns, [0, 1, 384, 448, 512, 600], max_tokens=512, buffer_tokens=128)
    assert penalties == [0.0, 0.0, 0.0, -0.5, -1.0, -1.0]
    assert not np.signbit(penalties[:3]).any()
    assert _overlong(make_turns, [448], max_tokens=512, buffer_tokens=128, factor=0.2) == [-0.1]


def test_overlong_is_paid_for_every_response(make_turns):
    config = RewardConfig(
        components=["environment", "overlong"], options={"overlong": {"max_tokens": 4, "buffer_tokens": 2}}
    )
    turns = make_turns(
        [
            {"turn": 0, "response_ids": [3] * 3, "action_rewards": [1.0]},  # (2 - 3) / 2 = -0.5
            {"turn": 1, "response_ids": [3] * 4, "action_rewards": [0.0]},  # -1
            {"turn": 2, **TRUNCATED},  # no response: 0
        ]
    )
    rewards = compute_rewards(turns, config)
    assert rewards["total"].to_pylist() == [0.5, -1.0, 0.0]
    assert rewards["trajectory_return"].to_pylist() == [-0.5] * 3


@given(lengths=st.lists(st.integers(0, 40), min_size=2, max_size=6), buffer=st.integers(1, 20))
def test_a_longer_response_never_costs_less(make_turns, lengths, buffer):
    penalties = _overlong(make_turns, sorted(lengths), max_tokens=20, buffer_tokens=buffer, factor=3.0)
    assert penalties == sorted(penalties, reverse=True)
    assert -3.0 <= min(penalties) <= max(penalties) <= 0.0


def test_buffer_longer_than_response_refused():
    with pytest.raises(ValueError, match="is larger than max_tokens = 16; expected at most max_tokens"):
        OverlongOptions(max_tokens=16, buffer_tokens=17)


def _episode(plan: list[str], action_cost: float, limits: tuple[int, int]) -> list[dict]:
    """Rows of an agent that follows `plan` ('act', 'malformed', 'full') and never succeeds: every action costs."""
    max_actions, per_turn = limits
    rows, actions_left = [], max_actions
    for turn, step in enumerate(plan):
        if actions_left == 0:
            break
        count = min(per_turn, actions_left)
        row = {"turn": turn, "action_cost": action_cost, "actions_left": actions_left}
        if step == "act":
            acted = {"executed_actions": ["Up"] * count, "action_rewards": [action_cost] * count}
            row |= acted | {"action_effective": [False] * count}
        elif step == "malformed":
            row |= MALFORMED | {"forfeited_actions": count}
        else:
            rows.append(row | TRUNCATED | {"truncated": True})
            break
        actions_left -= count
        rows.append(row)
    return rows


@pytest.mark.ci
@given(
    plan=st.lists(st.sampled_from(["act", "malformed", "full"]), min_size=1, max_size=6),
    action_cost=st.sampled_from(ACTION_COSTS) | st.floats(-100, 0),
    penalty=st.floats(-1000, 0),
    limits=st.tuples(st.integers(1, 12), st.integers(1, 5)),
)
def test_malformed_response_never_beats_failing(make_turns, plan, action_cost, penalty, limits):
    """Holds at any turns of an episode, compared with executing as many actions there, each at the environment's cost.

    'full' is where responses that never end lead: the context is full, and the episode stops with actions left.
    """
    # The acting agent takes every turn it may: a full context must not pay as a way to stop early.
    num_turns = len(plan) if "full" not in plan else len(plan) + limits[0]
    config = RewardConfig(format_penalty=penalty)
    careless = compute_rewards(make_turns(_episode(plan, action_cost, limits)), config)
    acting = compute_rewards(make_turns(_episode(["act"] * num_turns, action_cost, limits)), config)
    pays = careless["trajectory_return"][0].as_py()
    assert pays <= acting["trajectory_return"][0].as_py() + 1e-9
