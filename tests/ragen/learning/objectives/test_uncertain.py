"""The most uncertain tokens: hand-computed, and a loop over Python lists."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from starpo.ragen.learning.objectives.uncertain import most_uncertain


@pytest.mark.parametrize(
    ("share", "expected"),
    [(0.2, [1.0, 0.9]), (0.21, [1.0, 0.9, 0.8]), (0.01, [1.0]), (1.0, [n / 10 for n in range(10, 0, -1)])],
)
def test_share_of_ten_by_hand(share, expected):
    entropies = torch.arange(1, 11) / 10
    kept = entropies[most_uncertain(entropies, share)]
    assert sorted(kept.tolist(), reverse=True) == pytest.approx(expected)


@pytest.mark.ci
@given(st.lists(st.integers(0, 5), max_size=12), st.sampled_from([0.1, 0.25, 0.5, 1.0]))
def test_share_equals_naive_loop(entropies, share):
    marked = most_uncertain(torch.tensor(entropies, dtype=torch.float64), share).tolist()
    for entropy, is_in in zip(entropies, marked, strict=True):
        num_above = sum(other > entropy for other in entropies)
        assert is_in == (num_above < math.ceil(share * len(entropies)))
