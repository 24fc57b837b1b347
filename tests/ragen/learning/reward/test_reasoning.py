import numpy as np
import pytest

from starpo.ragen.config.reward import RewardConfig
from starpo.ragen.learning.reward.reasoning import agreement, reasoning_format

CONFIG = RewardConfig(components=["agreement", "reasoning_format"])


def formed(reasoning: str) -> str:
    return f"<observation>go right</observation><reasoning>{reasoning}</reasoning>"


def test_format_paid_without_blank_parts(make_turns):
    thoughts = [formed("r"), formed("  \n"), "free", None, "<reasoning>r</reasoning><prediction>p</prediction>"]
    rows = [{"member": member, "think": think} for member, think in enumerate(thoughts)]
    rows.append({"member": 9, "think": formed("r"), "format_ok": False, "status": "format_error"})
    np.testing.assert_array_equal(reasoning_format(make_turns(rows), CONFIG), [0.5, 0.0, 0.0, 0.0, 0.5, 0.0])


@pytest.mark.parametrize(
    ("reasoning", "executed", "share"),
    [
        ("I go up", ["Up"], 1.0),
        ("I go up, then left", ["Up", "Left"], 1.0),
        ("I go up, then left", ["Up", "Down"], 0.5),  # the first of two
        ("I go up, then left", ["Up"], 0.5),
        ("I go up", ["Up", "Up", "Up"], 1 / 3),
        ("I go left", ["Up"], 0.0),
        ("I go left. No: I go up", ["Up"], 1.0),
        ("I go up. No: I go left", ["Up"], 0.0),
        ("I go up, down, left, right, up, down, left, right", ["Up"], 1 / 8),  # names all directions
        ("Up is good", ["Up"], 0.0),
        ("", ["Right"], 0.0),  # a plan outside <reasoning> does not count
        ("I go up", [], 0.0),
    ],
)
def test_agreement_is_executed_plan_share(make_turns, reasoning, executed, share):
    turns = make_turns([{"think": formed(reasoning), "executed_actions": executed}])
    np.testing.assert_allclose(agreement(turns, CONFIG), [0.5 * share])


def test_plan_cut_by_episode_end_ignored(make_turns):
    row = {"think": formed("I go up, then left"), "executed_actions": ["Up"]}
    turns = make_turns([row, {**row, "member": 1, "terminated": True}])
    np.testing.assert_allclose(agreement(turns, CONFIG), [0.25, 0.5])


def test_plan_cut_by_action_limit_ignored(make_turns):
    turns = make_turns([{"think": formed("go up three times"), "executed_actions": ["Up", "Up"], "truncated": True}])
    np.testing.assert_allclose(agreement(turns, CONFIG), [0.5])


def test_free_reasoning_has_plans_too(make_turns):
    rows = [{"think": "I go up"}, {"think": None, "member": 1}]
    rows.append({"think": "I go up", "member": 2, "format_ok": False, "status": "format_error"})
    np.testing.assert_allclose(agreement(make_turns(rows), CONFIG), [0.5, 0.0, 0.0])


def test_no_turns(make_turns):
    assert agreement(make_turns([]), CONFIG).shape == reasoning_format(make_turns([]), CONFIG).shape == (0,)
