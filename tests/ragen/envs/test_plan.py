import time

import pytest

from starpo.ragen.envs.plan import read_plan


@pytest.mark.parametrize(
    ("text", "plan"),
    [
        ("I will push left and then go down twice.", ("left", "down", "down")),
        ("Plan: Up, Up, Left", ("up", "up", "left")),
        ("My actions are: Up || Left", ("up", "left")),
        ("I could go up, but moving right is better. I move right then up.", ("right", "up")),
        ("First I need to go to the left, then push the box up", ("left", "up")),
        ("walk north 3 times", ("up", "up", "up")),
        ("So I head down", ("down",)),
        ("go up 12 times", ("up",) * 12),
        ("go left 10", ("left",) * 10),
        ("go down fourteen cells", ("down",)),
        ("the box is left of the player", ()),
        ("left, right, up, down", ()),
        ("", ()),
    ],
)
def test_the_last_plan_is_read(text, plan):
    assert read_plan(text) == plan


def test_hostile_text_takes_linear_time():
    started = time.perf_counter()
    for piece in ("go up and then ", "go ", "plan: ", "up, "):
        read_plan(piece * 50_000)
    assert time.perf_counter() - started < 10
