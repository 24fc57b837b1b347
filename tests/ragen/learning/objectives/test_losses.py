"""Per-token losses: hand-computed and at the extremes; token weights that add up for any split of a batch."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from starpo.ragen.learning.objectives.losses import (
    entropy,
    token_weights,
    truncated_importance,
    value_loss,
)

AGGREGATIONS = ["token_mean", "sequence_mean", "dr_grpo"]


def test_no_gradient_flows_into_targets():
    targets, old = (torch.ones(3, requires_grad=True) for _ in range(2))
    values = torch.full((3,), 1.1, requires_grad=True)
    value_loss(values, old, targets, 0.5).sum().backward()
    assert targets.grad is None
    assert old.grad is None
    assert (values.grad != 0).all()


def test_value_loss_by_hand():
    values, old, targets = torch.tensor([1.0, 2.0, 0.9]), torch.tensor([0.0, 0.0, 1.0]), torch.tensor([3.0, 1.0, 2.0])
    # unclipped: (1-3)^2/2, (2-1)^2/2, (0.9-2)^2/2
    assert_close(value_loss(values, old, targets, None), torch.tensor([2.0, 0.5, 0.605]))
    # clipped at 0.5 from the old value: values 0.5, 0.5, 0.9; the larger of both squares: 6.25, 1, 1.21
    assert_close(value_loss(values, old, targets, 0.5), torch.tensor([3.125, 0.5, 0.605]))


def test_truncated_importance_caps_above_only():
    old, behaviour = torch.log(torch.tensor([0.5, 0.9, 0.1])), torch.log(torch.tensor([0.5, 0.1, 0.2]))
    assert_close(truncated_importance(old, behaviour, 2.0), torch.tensor([1.0, 2.0, 0.5]))
    assert not truncated_importance(old.requires_grad_(), behaviour, 2.0).requires_grad


def test_entropy_of_uniform_and_certain():
    uniform = torch.full((2, 8), -math.log(8))
    assert_close(entropy(uniform), torch.full((2,), math.log(8)))
    certain = torch.tensor([0.0, -math.inf, -math.inf])
    assert entropy(certain).item() == 0


def test_token_weights_by_hand():
    lengths_B = torch.tensor([1, 3, 0])
    assert token_weights(lengths_B, "token_mean", 10).tolist() == pytest.approx([1 / 4, 1 / 4, 0])
    assert token_weights(lengths_B, "sequence_mean", 10).tolist() == pytest.approx([1 / 2, 1 / 6, 0])
    assert token_weights(lengths_B, "dr_grpo", 10).tolist() == pytest.approx([1 / 20, 1 / 20, 0])


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_token_weights_of_nothing_are_nothing(aggregation):
    assert token_weights(torch.tensor([0, 0]), aggregation, 5).tolist() == [0, 0]


@given(st.lists(st.integers(1, 9), min_size=2, max_size=8), st.sampled_from(AGGREGATIONS), st.data())
def test_micro_batches_sum_to_same_loss(lengths, aggregation, data):
    """For any cut, the sum over the parts is the loss of the whole batch, unlike a mean of means."""
    weights_N = token_weights(torch.tensor(lengths), aggregation, 9).repeat_interleave(torch.tensor(lengths))
    terms_N = torch.arange(1.0, len(weights_N) + 1, dtype=torch.float64)
    cut = data.draw(st.integers(0, len(weights_N)))
    parts = sum(float((terms_N[s] * weights_N[s]).sum()) for s in (slice(0, cut), slice(cut, None)))
    start, by_hand = 0, []
    for length in lengths:
        by_hand.append(terms_N[start : start + length])
        start += length
    expected = {
        "token_mean": float(terms_N.mean()),
        "sequence_mean": float(torch.stack([t.mean() for t in by_hand]).mean()),
        "dr_grpo": float(terms_N.sum()) / (9 * len(lengths)),
    }[aggregation]
    assert parts == pytest.approx(expected)
