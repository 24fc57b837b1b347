"""Levels of a curriculum: estimates over a window, groups dealt by shares, and what a rule may return."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from starpo.ragen.core.errors import DataError
from starpo.ragen.core.registry import CURRICULA
from starpo.ragen.learning.levels import curriculum_metrics, deal_levels, next_curriculum
from starpo.ragen.learning.metrics.glossary import explain
from starpo.ragen.methods.curricula.settings import GatesSettings, PoolsSettings
from starpo.schemas.datasets import CURRICULUM
from starpo.schemas.validate import validate
from tests.examples import example

BASES = {"a": 2.0, "b": 1.0, "c": 1.0}
POOLS = PoolsSettings(window=2, floor=0.2)


def selection(*groups: tuple[str, float], num_valid: int = 4) -> pa.Table:
    """Return a selection with the success rates of groups of these levels."""
    row = example("selection").to_pylist()[0]
    rows = [{**row, "env": env, "success_rate": rate, "num_valid": num_valid} for env, rate in groups]
    return pa.Table.from_pylist(rows, example("selection").schema)


def column(table: pa.Table, name: str) -> list[Any]:
    return table[name].to_pylist()


def shared(**shares: float) -> pa.Table:
    """Return a curriculum with these shares, and nothing played yet."""
    row: Mapping[str, Any] = {"success": None, "recent": [], "num_groups": 0, "owed": 0.0}
    rows = [
        {**row, "level": level, "place": place, "base_share": 1 / len(shares), "share": share, "is_open": share > 0}
        for place, (level, share) in enumerate(shares.items())
    ]
    return pa.Table.from_pylist(rows, CURRICULUM.schema)


def test_first_curriculum_knows_nothing() -> None:
    first = next_curriculum(BASES, POOLS, None, [])
    validate(first, "curriculum")
    assert column(first, "level") == ["a", "b", "c"]
    assert column(first, "share") == column(first, "base_share") == [0.5, 0.25, 0.25]
    assert column(first, "success") == [None] * 3


def test_shares_follow_the_latest_groups() -> None:
    """By hand. Of eight groups, a played 4 (its share), b 3 and c 1. The last two of a have a mean of 0.75 and weigh
    0.25 / 0.5 of its half: 0.25; those of b 0.5: all of its quarter, 0.25; c 0. So a and b have half of 0.8 each."""
    first = next_curriculum(BASES, POOLS, None, [])
    groups = [("a", 0.0), ("b", 1.0), ("a", 0.0), ("b", 0.75), ("a", 1.0), ("c", 0.0), ("a", 0.5), ("b", 0.25)]
    attempts = [selection(*groups[:5]), selection(*groups[5:])]
    second = next_curriculum(BASES, POOLS, first, attempts)
    validate(second, "curriculum")
    assert column(second, "recent") == [[1.0, 0.5], [0.75, 0.25], [0.0]]
    assert column(second, "success") == [0.75, 0.5, 0.0]
    assert column(second, "share") == pytest.approx([0.1 + 0.4, 0.05 + 0.4, 0.05])
    assert column(second, "num_groups") == [4, 3, 1]
    assert column(second, "owed") == [0.0, -1.0, 1.0]
    assert curriculum_metrics(second)["curriculum/success/a"] == 0.75


def test_window_reaches_over_rollouts() -> None:
    first = next_curriculum(BASES, POOLS, None, [])
    second = next_curriculum(BASES, POOLS, first, [selection(("a", 0.25), ("b", 0.5))])
    third = next_curriculum(BASES, POOLS, second, [selection(("a", 0.75))])
    assert column(third, "recent") == [[0.25, 0.75], [0.5], []]


def test_invalid_groups_enter_no_estimate() -> None:
    first = next_curriculum(BASES, POOLS, None, [])
    second = next_curriculum(BASES, POOLS, first, [selection(("a", 0.0), num_valid=0)])
    assert column(second, "num_groups") == [1, 0, 0]
    assert column(second, "success") == [None] * 3


def test_gates_remember_what_is_open() -> None:
    config = GatesSettings(window=1, threshold=0.5)
    first = next_curriculum(BASES, config, None, [])
    second = next_curriculum(BASES, config, first, [selection(("a", 1.0))])
    third = next_curriculum(BASES, config, second, [selection(("a", 0.0), ("b", 0.0))])
    opened = [column(table, "is_open") for table in (first, second, third)]
    assert opened == [[True, False, False], [True, True, False], [True, True, False]]
    assert column(third, "share") == pytest.approx([2 / 3, 1 / 3, 0.0])


def test_groups_are_dealt_by_shares() -> None:
    assert deal_levels(shared(a=0.5, b=0.25, c=0.25), 8) == ["a", "b", "c", "a", "a", "b", "c", "a"]
    assert deal_levels(shared(a=1.0, b=0.0), 3) == ["a", "a", "a"]


def test_small_share_is_played_eventually() -> None:
    """A tenth of two groups is less than one of them; over ten rollouts it is two."""
    table, config = shared(a=0.9, b=0.1), PoolsSettings(floor=1.0)
    played: Counter[str] = Counter()
    for _ in range(10):
        dealt = deal_levels(table, 2)
        played.update(dealt)
        table = next_curriculum({"a": 0.9, "b": 0.1}, config, table, [selection(*((tag, 0.5) for tag in dealt))])
    assert played == {"a": 18, "b": 2}


@given(st.lists(st.integers(0, 9), min_size=2, max_size=5).filter(any), st.integers(1, 40), st.integers(0, 10))
def test_dealing_fewer_groups_is_a_prefix(weights: list[int], number: int, more: int) -> None:
    table = shared(**{chr(97 + n): weight / sum(weights) for n, weight in enumerate(weights)})
    dealt = deal_levels(table, number)
    assert deal_levels(table, number + more)[:number] == dealt
    for tag, share in zip(column(table, "level"), column(table, "share"), strict=True):
        assert abs(dealt.count(tag) - share * number) < len(weights)


@pytest.mark.parametrize("shares", [[0.5], [0.5, -0.5], [0.0, 0.0], [float("nan"), 1.0]])
def test_bad_shares_are_named(shares: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("starpo.ragen.methods.curricula.rules.pools", lambda levels, settings: shares)
    with pytest.raises(DataError, match=r"curriculum 'pools' gave the shares .* for the levels a, b: expected"):
        next_curriculum({"a": 1.0, "b": 1.0}, POOLS, None, [])


def test_metrics_are_explained() -> None:
    assert set(CURRICULA) >= {"pools", "gates"}
    names = curriculum_metrics(next_curriculum(BASES, POOLS, shared(a=0.5, b=0.5, c=0.0), [selection(("a", 1.0))]))
    assert sorted(names) == ["curriculum/share/a", "curriculum/share/b", "curriculum/share/c", "curriculum/success/a"]
    assert all(explain(name) for name in names)
