"""Which turns are credited, and which of them share a state."""

from typing import Any

import pyarrow as pa
import pytest

from starpo.ragen.learning.true_credit.states import credited, find_states
from tests.examples import example_turns


def row(name: str, turn: int, **columns: Any) -> dict[str, Any]:
    return {
        "trajectory_id": name, "group_id": "g0", "env": "lake", "env_seed": 1, "turn": turn, "observation": f"P {turn}",
        "is_context_start": True, "prompt_ids": [turn], "response_ids": [9], "finish_reason": "stop",
        "actions_left": 5 - turn, "initial_state_digest": "0" * 16, "state_digest": f"{turn + 1:016x}",
    } | columns  # fmt: skip


def test_equal_states_are_one() -> None:
    states = find_states([row("a", 0), row("a", 1), row("b", 0), row("b", 1)], is_history_shared=True)
    assert states.before.tolist() == [0, 1, 0, 1]
    assert states.after.tolist() == [1, -1, 1, -1]
    assert states.places == [("a", 0), ("a", 1)]


@pytest.mark.parametrize(
    "difference",
    [{"prompt_ids": [7]}, {"actions_left": 1}, {"observation": "P 9"}, {"env": "other"}],
)
def test_differing_states_are_two(difference: dict[str, Any]) -> None:
    states = find_states([row("a", 0), row("a", 1), row("b", 0), row("b", 1, **difference)], is_history_shared=True)
    assert states.before.tolist() == [0, 1, 0, 2]


def test_environment_decides_even_unseen() -> None:
    rows = [row("a", 0), row("a", 1), row("b", 0, state_digest="f" * 16), row("b", 1)]
    assert find_states(rows, is_history_shared=True).before.tolist() == [0, 1, 0, 2]


def test_growing_context_is_part_of_state() -> None:
    rows = [row("a", 0), row("a", 1, is_context_start=False)]
    others = [row("b", 0, response_ids=[8]), row("b", 1, is_context_start=False)]
    assert find_states([*rows, *others], is_history_shared=True).before.tolist() == [0, 1, 0, 2]


def test_history_that_rewards_read_separates() -> None:
    rows = [row("a", 0), row("a", 1), row("b", 0, response_ids=[8]), row("b", 1)]
    assert find_states(rows, is_history_shared=True).before.tolist() == [0, 1, 0, 1]
    assert find_states(rows, is_history_shared=False).before.tolist() == [0, 1, 0, 2]


def test_turn_without_response_is_alone() -> None:
    full = {"finish_reason": "none", "prompt_ids": [], "response_ids": []}
    rows = [row("a", 0), row("a", 1, **full), row("b", 0), row("b", 1, **full)]
    assert find_states(rows, is_history_shared=True).before.tolist() == [0, 1, 0, 2]


def test_errors_and_greedy_are_left_out() -> None:
    turns = example_turns()
    rows = turns.to_pylist()
    names = list(dict.fromkeys(r["trajectory_id"] for r in rows))
    for r in rows:
        if r["trajectory_id"] == names[0]:
            r["status"] = "env_error"
        if r["trajectory_id"] == names[1]:
            r["origin"] = "greedy"
    chosen = credited(pa.Table.from_pylist(rows, schema=turns.schema), [rows[0]["group_id"]], None, str)
    members = [name for name in names if name.startswith(rows[0]["group_id"])]
    assert chosen.trajectories == members[2:]
    assert (chosen.num_all, chosen.num_errors, chosen.num_greedy) == (len(members), 1, 1)


def test_sample_takes_lowest_ranks() -> None:
    turns = example_turns()
    names = list(dict.fromkeys(turns["trajectory_id"].to_pylist()))
    groups = turns["group_id"].to_pylist()
    chosen = credited(turns, groups, 2, lambda name: -names.index(name))
    assert chosen.trajectories == names[-2:]
