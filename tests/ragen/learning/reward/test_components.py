import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from starpo.ragen.config.reward import RewardConfig
from starpo.ragen.core.registry import ENVIRONMENTS, load
from starpo.ragen.learning.reward.components import environment_reward, forfeited_actions, format_penalty
from starpo.ragen.learning.reward.compute import compute_rewards
from starpo.schemas.datasets import NO_RESPONSE

ACTION_COSTS = sorted({load(ENVIRONMENTS, name).action_cost for name in ENVIRONMENTS} | {0.0, -0.1, -2.5})

NOTHING_DONE = NO_RESPONSE.keys() - {"prompt_ids", "response_ids", "behaviour_logprobs", "finish_reason"}
MALFORMED = {name: NO_RESPONSE[name] for name in NOTHING_DONE} | {"status": "format_error"}
TRUNCATED = {**NO_RESPONSE, "status": "truncated"}


def test_environment_reward_adds_up_the_actions_of_a_turn(make_turns):
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


def test_forfeit_prices_what_was_given_up(make_turns):
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


@given(
    plan=st.lists(st.sampled_from(["act", "malformed", "full"]), min_size=1, max_size=6),
    action_cost=st.sampled_from(ACTION_COSTS) | st.floats(-100, 0),
    penalty=st.floats(-1000, 0),
    limits=st.tuples(st.integers(1, 12), st.integers(1, 5)),
)
def test_a_malformed_empty_or_never_ending_response_never_pays_better_than_acting_and_failing(
    make_turns, plan, action_cost, penalty, limits
):
    """At any turns of an episode: compared with taking as many actions in them, each at the environment's price.

    'full' is the end of never-ending responses: the context is full, and the episode stops with actions left.
    """
    # An agent that acts takes as many turns as it may: a full context must not be a way to stop early.
    num_turns = len(plan) if "full" not in plan else len(plan) + limits[0]
    config = RewardConfig(format_penalty=penalty)
    careless = compute_rewards(make_turns(_episode(plan, action_cost, limits)), config)
    acting = compute_rewards(make_turns(_episode(["act"] * num_turns, action_cost, limits)), config)
    pays = careless["trajectory_return"][0].as_py()
    assert pays <= acting["trajectory_return"][0].as_py() + 1e-9


def test_without_the_forfeit_being_malformed_would_pay(make_turns):
    """The fault that the forfeit mends: at -0.1 a malformed response beats five actions at -0.1 each."""
    config = RewardConfig(format_penalty=-0.1, components=["environment", "format"])
    careless = compute_rewards(make_turns(_episode(["malformed"], -0.1, (5, 5))), config)
    acting = compute_rewards(make_turns(_episode(["act"], -0.1, (5, 5))), config)
    assert careless["trajectory_return"][0].as_py() == pytest.approx(-0.1)
    assert acting["trajectory_return"][0].as_py() == pytest.approx(-0.5)
