"""Statistics over masks, and turn ends from turn indices."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from starpo.ragen.learning.objectives.masks import ZERO_STD, masked_mean, masked_std, turn_ends, whiten
from starpo.schemas.rules import ZERO_VARIANCE_STD

VALUES = torch.tensor([1.0, math.nan, 3.0, math.inf])
MASK = torch.tensor([True, False, True, False])


def test_estimators_and_filters_share_return_equality():
    """Otherwise the filter could keep a group without advantages, or drop one that has some."""
    assert ZERO_STD == ZERO_VARIANCE_STD


def test_by_hand_ignoring_outside_nan():
    assert masked_mean(VALUES, MASK).item() == 2  # (1 + 3) / 2
    assert masked_std(VALUES, MASK).item() == 1  # ddof 0
    assert whiten(VALUES, MASK).tolist() == [-1, 0, 1, 0]


def test_empty_or_equal_values_give_zeros():
    nothing = torch.zeros(4, dtype=torch.bool)
    assert masked_mean(VALUES, nothing).item() == 0
    assert masked_std(VALUES, nothing).item() == 0
    assert whiten(VALUES, nothing).tolist() == [0, 0, 0, 0]
    assert whiten(torch.full((3,), 0.1), torch.ones(3, dtype=torch.bool)).abs().max() < 1e-7


@given(st.lists(st.tuples(st.floats(-100, 100), st.booleans()), min_size=1, max_size=20))
def test_whitened_values_have_unit_scale(pairs):
    values = torch.tensor([v for v, _ in pairs], dtype=torch.float64)
    mask = torch.tensor([m for _, m in pairs])
    whitened = whiten(values, mask)
    assert masked_mean(whitened, mask).item() == pytest.approx(0, abs=1e-6)
    if masked_std(values, mask) > 1e-3:
        assert masked_std(whitened, mask).item() == pytest.approx(1)


def test_turn_ends_are_structural():
    turn_BT = torch.tensor([[0, 0, 1, 1, 3], [0, 7, 0, 2, 7], [5, 5, 5, 5, 5]])
    mask_BT = torch.tensor([[True] * 5, [True, False, True, True, False], [False] * 5])
    assert turn_ends(turn_BT, mask_BT).int().tolist() == [[0, 1, 0, 1, 1], [0, 0, 1, 1, 0], [0] * 5]


def test_turn_ends_of_no_tokens():
    assert turn_ends(torch.zeros((2, 0), dtype=torch.int64), torch.zeros((2, 0), dtype=torch.bool)).shape == (2, 0)


def test_non_bool_mask_is_refused():
    with pytest.raises(AssertionError, match="bool"):
        masked_mean(VALUES, MASK.float())
