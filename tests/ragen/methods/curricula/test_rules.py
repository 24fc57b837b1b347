"""Shares of pools and gates, by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starpo.ragen.learning.levels import Level
from starpo.ragen.methods.curricula.rules import gates, pools
from starpo.ragen.methods.curricula.settings import GatesSettings, PoolsSettings


def level(tag: str, recent: tuple[float, ...] = (), *, base: float = 0.25, share: float = 0.0) -> Level:
    return Level(tag, base, share, recent, len(recent))


def test_pools_prefer_levels_near_target() -> None:
    """Weights are 1 - 0.9 over 0.5, 0.25 over 0.5, none, and one for the new level: 0.2, 0.5, 0, 1; they sum to 1.7.
    A fifth of the groups is dealt evenly, 0.05 each, and 0.8 by weight."""
    levels = [level("solved", (1.0, 0.8)), level("learning", (0.25,)), level("impossible", (0.0, 0.0)), level("new")]
    shares = pools(levels, PoolsSettings(target=0.5, floor=0.2))
    assert shares == pytest.approx([0.05 + 0.8 * weight / 1.7 for weight in (0.2, 0.5, 0.0, 1.0)])
    assert sum(shares) == pytest.approx(1.0)


def test_pools_aim_at_another_target() -> None:
    """At target 0.8, success 0.4 weighs 0.4 / 0.8, and 0.9 weighs 0.1 / 0.2: the same."""
    assert pools([level("a", (0.4,)), level("b", (0.9,))], PoolsSettings(target=0.8, floor=0.0)) == pytest.approx(
        [0.5, 0.5]
    )


def test_pools_weigh_environment_shares() -> None:
    levels = [level("a", (0.5,), base=0.75), level("b", (0.5,), base=0.25)]
    assert pools(levels, PoolsSettings(floor=0.0)) == [0.75, 0.25]


def test_pools_without_signal_keep_shares() -> None:
    levels = [level("a", (1.0,), base=0.75), level("b", (0.0,), base=0.25)]
    assert pools(levels, PoolsSettings()) == [0.75, 0.25]


@given(st.lists(st.lists(st.floats(0, 1), max_size=3), min_size=2, max_size=5), st.floats(0, 1), st.floats(0.01, 0.99))
def test_pools_keep_the_floor(recents: list[list[float]], floor: float, target: float) -> None:
    levels = [level(str(n), tuple(recent), base=1 / len(recents)) for n, recent in enumerate(recents)]
    shares = pools(levels, PoolsSettings(floor=floor, target=target))
    assert sum(shares) == pytest.approx(1.0)
    assert all(share >= floor / len(levels) - 1e-12 for share in shares)


GATES = GatesSettings(window=2, threshold=0.5)


def test_first_level_is_open_alone() -> None:
    assert gates([level("a"), level("b"), level("c")], GATES) == [1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("recent", "shares"),
    [((1.0,), [1.0, 0.0, 0.0]), ((0.5, 0.25), [1.0, 0.0, 0.0]), ((0.5, 0.5), [0.5, 0.5, 0.0])],
    ids=["window not full", "below the threshold", "at the threshold"],
)
def test_gate_opens_at_threshold(recent: tuple[float, ...], shares: list[float]) -> None:
    assert gates([level("a", recent, share=1.0), level("b"), level("c")], GATES) == shares


def test_open_gate_stays_open() -> None:
    levels = [level("a", (0.0, 0.0), share=0.5), level("b", (1.0, 1.0), share=0.5, base=0.5), level("c")]
    assert gates(levels, GATES) == [0.25, 0.5, 0.25]  # of 0.25, 0.5 and 0.25: the third opens by the second
