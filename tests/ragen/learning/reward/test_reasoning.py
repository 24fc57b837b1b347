import numpy as np

from starpo.ragen.config.reward import RewardConfig
from starpo.ragen.learning.reward.reasoning import reasoning_format

CONFIG = RewardConfig(components=["reasoning_format"])


def formed(reasoning: str) -> str:
    return f"<observation>go right</observation><reasoning>{reasoning}</reasoning>"


def test_format_is_paid_where_no_part_is_blank(make_turns):
    thoughts = [formed("r"), formed("  \n"), "free", None, "<reasoning>r</reasoning><prediction>p</prediction>"]
    rows = [{"member": member, "think": think} for member, think in enumerate(thoughts)]
    rows.append({"member": 9, "think": formed("r"), "format_ok": False, "status": "format_error"})
    np.testing.assert_array_equal(reasoning_format(make_turns(rows), CONFIG), [0.5, 0.0, 0.0, 0.0, 0.5, 0.0])


def test_no_turns(make_turns):
    assert reasoning_format(make_turns([]), CONFIG).shape == (0,)
