"""Importance weights of tokens and sequences: hand-computed numbers, and a loop over Python lists."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from starpo.ragen.learning.objectives.importance import UNITS, importance_weights
from starpo.ragen.learning.objectives.losses import truncated_importance

SEQUENCES = [0, 0, 1, 1]
RATIOS = [1.5, 0.5, 2.0, 4.0]  # products 0.75 and 8, geometric means sqrt(0.75) = 0.8660 and sqrt(8) = 2.8284


def weights(unit: str, floor: float | None = None, outside: str = "truncate", cap: float = 2.5) -> list[float]:
    old = torch.tensor(RATIOS, dtype=torch.float64).log()
    given = torch.zeros(4, dtype=torch.float64), torch.tensor(SEQUENCES)
    return importance_weights(old, *given, unit, cap, floor, outside)[0].tolist()


@pytest.mark.parametrize(
    ("unit", "floor", "outside", "expected"),
    [
        ("token", None, "truncate", [1.5, 0.5, 2.0, 2.5]),
        ("token", 0.8, "truncate", [1.5, 0.8, 2.0, 2.5]),
        ("token", None, "mask", [1.5, 0.5, 2.0, 0]),
        ("token", 0.8, "mask", [1.5, 0, 2.0, 0]),  # IcePop's band
        ("sequence", None, "truncate", [0.75, 0.75, 2.5, 2.5]),
        ("sequence", 0.8, "mask", [0, 0, 0, 0]),
        ("sequence_geometric", None, "truncate", [0.866025, 0.866025, 2.5, 2.5]),
        ("sequence_geometric", 0.8, "mask", [0.866025, 0.866025, 0, 0]),
    ],
)
def test_weights_by_hand(unit, floor, outside, expected):
    assert weights(unit, floor, outside) == pytest.approx(expected, abs=1e-6)


def naive(gaps: list[float], sequences: list[int], unit: str, cap: float, floor: float | None, outside: str) -> list:
    out = []
    for gap, sequence in zip(gaps, sequences, strict=True):
        logs = [g for g, s in zip(gaps, sequences, strict=True) if s == sequence]
        log = {"token": gap, "sequence": sum(logs), "sequence_geometric": sum(logs) / len(logs)}[unit]
        weight = math.exp(min(max(log, -20), 20))
        if (floor or 0) <= weight <= cap:
            out.append(weight)
        else:
            out.append(0.0 if outside == "mask" else min(max(weight, floor or 0), cap))
    return out


@pytest.mark.ci
@given(
    st.lists(st.tuples(st.floats(-3, 3), st.integers(0, 2)), min_size=1, max_size=9),
    st.sampled_from(sorted(UNITS)),
    st.sampled_from([None, 0.5]),
    st.sampled_from(["truncate", "mask"]),
)
def test_weights_equal_naive_loop(tokens, unit, floor, outside):
    gaps, sequences = (list(column) for column in zip(*tokens, strict=True))
    old = torch.tensor(gaps, dtype=torch.float64)
    actual, is_outside = importance_weights(
        old, torch.zeros_like(old), torch.tensor(sequences), unit, 2.03, floor, outside
    )
    expected = naive(gaps, sequences, unit, 2.03, floor, outside)
    plain = naive(gaps, sequences, unit, math.inf, None, "truncate")
    assert actual.tolist() == pytest.approx(expected, rel=1e-9)
    assert is_outside.tolist() == [not (floor or 0) <= weight <= 2.03 for weight in plain]


@given(st.lists(st.floats(-30, 30), min_size=1, max_size=6), st.floats(1, 5))
def test_tokens_truncated_as_ever(gaps, cap):
    old, behaviour = torch.tensor(gaps), torch.zeros(len(gaps))
    actual, _ = importance_weights(old, behaviour, torch.arange(len(gaps)), "token", cap, None, "truncate")
    assert torch.equal(actual, truncated_importance(old, behaviour, cap))
