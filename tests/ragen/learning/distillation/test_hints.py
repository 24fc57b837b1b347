"""Plans lead to the goal from the state that the policy met; outcomes say how attempts end."""

import pyarrow as pa

from starpo.ragen.envs import make
from starpo.ragen.envs.frozen_lake.environment import FrozenLakeSettings
from starpo.ragen.envs.sokoban.environment import SokobanSettings
from starpo.ragen.learning.distillation.hints import outcomes, plans
from starpo.schemas.datasets import TURNS
from tests.examples import example_turns

LAKE = FrozenLakeSettings(slip=0.0)
SOKOBAN = SokobanSettings(generator="distance", min_solution=2, max_solution=3)


def rows(*changes) -> pa.Table:
    template = example_turns().slice(0, 1).to_pylist()[0] | {"dynamics_seed": 1, "env_seed": 5, "group_id": "g"}
    return pa.Table.from_pylist([template | change for change in changes], schema=TURNS.schema)


def turn(member: int, number: int, actions=(), **changes):
    named = {"trajectory_id": f"g/{member}", "member": member, "turn": number, "is_context_start": number == 0}
    costs = {"action_rewards": [-0.1] * len(actions), "action_effective": [True] * len(actions), "success": False}
    return named | costs | {"executed_actions": list(actions)} | changes


def test_plan_reaches_the_goal() -> None:
    hints = plans(rows(turn(0, 0)), LAKE, max_actions=20)
    lake = make(LAKE)
    lake.reset(seed=5, dynamics_seed=1)
    for action in hints["g/0", 0].split(" || "):
        lake.step(action)
    assert lake.is_success


def test_plan_starts_from_the_met_state() -> None:
    whole = plans(rows(turn(0, 0)), LAKE, max_actions=20)["g/0", 0].split(" || ")
    later = plans(rows(turn(0, 0, whole[:2]), turn(0, 1)), LAKE, max_actions=20)
    lake = make(LAKE)
    lake.reset(seed=5, dynamics_seed=1)
    for action in [*whole[:2], *later["g/0", 1].split(" || ")]:
        lake.step(action)
    assert lake.is_success


def test_equal_states_get_equal_plans() -> None:
    hints = plans(rows(turn(0, 0), turn(1, 0, dynamics_seed=9)), SOKOBAN, max_actions=5)
    assert hints["g/0", 0] == hints["g/1", 0]
    assert len(plans(rows(turn(0, 0)), SOKOBAN, max_actions=1)["g/0", 0].split(" || ")) == 1


def test_turn_without_response_has_no_plan() -> None:
    assert plans(rows(turn(0, 0, response_ids=[])), SOKOBAN, max_actions=5) == {}


def test_failure_is_told_what_another_did() -> None:
    attempts = rows(
        turn(0, 0, ["Up"]),
        turn(0, 1, ["Left"], is_context_start=False),
        turn(1, 0, ["Down", "Down"]),
        turn(1, 1, ["Right"], success=True),
        turn(2, 0, ["Up"], group_id="h", trajectory_id="h/0", action_rewards=[-0.5]),
    )
    assert outcomes(attempts) == {
        ("g/0", 0): "this attempt fails. One that reaches the goal: Down || Down; Right",
        ("g/1", 0): "this attempt reaches the goal.",
        ("h/0", 0): "this attempt fails, with a reward of -0.5.",
    }
