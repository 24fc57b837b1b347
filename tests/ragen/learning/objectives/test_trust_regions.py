"""Trust-region masks of tokens: hand-computed numbers, and a loop over Python lists."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from starpo.ragen.core.lookup import load
from starpo.ragen.core.registry import SURROGATES
from starpo.ragen.learning.objectives.ratios import log_ratio
from starpo.ragen.learning.objectives.surrogates import SurrogateInputs


def terms(name, policy, other, advantages, low=0.2, high=0.2):
    """Evaluate a surrogate on tokens with these probabilities; also return the log-probs, with their graph."""
    logprobs = torch.tensor(policy, dtype=torch.float64).log().requires_grad_()
    logs = log_ratio(logprobs, torch.tensor(other, dtype=torch.float64).log())
    unit, signals = torch.arange(len(policy)), torch.tensor(advantages, dtype=torch.float64)
    return load(SURROGATES, name)(SurrogateInputs(logprobs, logs, logs.exp(), signals, unit, low, high)), logprobs


def test_tv_leaves_out_what_moved_further():
    # 0.3 -> 0.6 moves 0.3, beyond 0.2: left out with A > 0, and with A < 0 it comes back; 0.001 -> 0.004 is inside
    result, logprobs = terms("dppo_tv", [0.6, 0.6, 0.004, 0.1], [0.3, 0.3, 0.001, 0.4], [1.0, -1.0, 1.0, -2.0])
    assert result.loss_M.tolist() == pytest.approx([0, 2, -4, 0])
    assert result.is_high_M.tolist() == [True, False, False, False]
    assert result.is_low_M.tolist() == [False, False, False, True]
    result.loss_M.sum().backward()
    assert logprobs.grad.tolist() == pytest.approx([0, 2, -4, 0])


def test_kl_by_hand():
    # q 0.5, p 0.75: 0.5 log(2/3) + 0.5 log 2 = 0.14384
    for bound, expected in ((0.1438, 0.0), (0.1439, -1.5)):
        result, _ = terms("dppo_kl", [0.75], [0.5], [1.0], high=bound)
        assert result.loss_M.tolist() == pytest.approx([expected])


def naive(name: str, policy: float, other: float, advantage: float, low: float, high: float) -> float:
    if name == "dppo_tv":
        divergence = abs(policy - other)
    else:
        divergence = other * math.log(other / policy) + (1 - other) * math.log((1 - other) / (1 - policy))
    if advantage > 0 and policy > other and divergence > high:
        return 0.0
    if advantage < 0 and policy < other and divergence > low:
        return 0.0
    return -policy / other * advantage


@pytest.mark.ci
@given(
    st.lists(st.tuples(st.floats(0.01, 0.99), st.floats(0.01, 0.99), st.floats(-3, 3)), min_size=1, max_size=8),
    st.sampled_from(["dppo_tv", "dppo_kl"]),
)
def test_masks_equal_naive_loop(tokens, name):
    result, _ = terms(name, *(list(column) for column in zip(*tokens, strict=True)), low=0.0503, high=0.1007)
    assert result.loss_M.tolist() == pytest.approx([naive(name, *token, 0.0503, 0.1007) for token in tokens], abs=1e-9)


@pytest.mark.parametrize("name", ["dppo_tv", "dppo_kl"])
def test_certain_tokens_have_a_loss(name):
    result, _ = terms(name, [1.0, 1.0], [1.0, 1e-9], [1.0, -1.0])
    assert torch.isfinite(result.loss_M).all()
