"""Inverse transform sampling: by hand, as a property against numpy, and in edge cases."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from starpo.ragen.agents.rollout.torch.sampling import cumulative, draw_tokens

HALF_QUARTERS = torch.log(torch.tensor([[0.25, 0.5, 0.25]]))


def draw(logits, uniforms, temperature=1.0, top_p=1.0):
    uniforms = torch.tensor(uniforms, dtype=torch.float64)
    tokens, logprobs = draw_tokens(logits.expand(len(uniforms), -1), uniforms, temperature, top_p)
    return tokens.tolist(), logprobs.tolist()


def test_top_p_uses_smallest_set_renormalised():
    # 0.5 alone is less than 0.7, so the quarter with the smaller id is added: {0, 1} with 1/3 and 2/3
    tokens, logprobs = draw(HALF_QUARTERS, [0.0, 0.33, 0.34, 0.999], top_p=0.7)
    assert tokens == [0, 0, 1, 1]
    assert logprobs == pytest.approx(np.log([1 / 3, 1 / 3, 2 / 3, 2 / 3]), abs=1e-6)
    # exactly 0.5 is reached by the most probable token alone
    assert draw(HALF_QUARTERS, [0.0, 0.999], top_p=0.5) == ([1, 1], pytest.approx([0.0, 0.0], abs=1e-6))


def test_zero_temperature_first_maximum_unscaled_logprob():
    logits = torch.log(torch.tensor([[0.2, 0.4, 0.4]]))
    tokens, logprobs = draw(logits, [0.99], temperature=0.0, top_p=0.1)
    assert tokens == [1]
    assert logprobs == pytest.approx([np.log(0.4)], abs=1e-6)


def test_largest_uniform_draws_possible_token():
    logits = torch.tensor([[0.0, 0.0, 0.0, -torch.inf]])
    largest = 1 - 2.0**-53
    assert draw(logits, [largest])[0] == [2]
    assert draw(torch.tensor([[-torch.inf, 0.0]]), [0.0])[0] == [1]


def test_infinite_logits_show_in_logprob():
    assert not np.isfinite(draw(torch.tensor([[0.0, torch.nan]]), [0.5])[1][0])


@given(
    st.lists(st.floats(-13, 13, width=32), min_size=2, max_size=40),  # at 0.3, above the least normal float32, e^-87
    st.floats(0, 1, exclude_max=True),
    st.sampled_from([0.3, 1.0, 2.0]),
)
def test_equals_numpy_in_double_precision(logits, uniform, temperature):
    scaled = np.array(logits) / temperature
    probs = np.exp(scaled - scaled.max())
    probs /= probs.sum()
    (token,), (logprob,) = draw(torch.tensor([logits]), [uniform], temperature)
    assert probs[:token].sum() <= uniform + 1e-5
    assert uniform <= probs[: token + 1].sum() + 1e-5
    assert logprob == pytest.approx(np.log(probs[token]), rel=1e-5, abs=1e-4)


@given(st.integers(1, 6), st.floats(0, 1, exclude_max=True))
def test_rows_are_independent(num_others, uniform):
    rows = torch.randn(num_others + 1, 11, generator=torch.Generator().manual_seed(num_others))
    alone = draw_tokens(rows[:1], torch.tensor([uniform], dtype=torch.float64), 1.0, 0.9)
    uniforms = torch.full((num_others + 1,), uniform, dtype=torch.float64)
    together = draw_tokens(rows, uniforms, 1.0, 0.9)
    assert alone[0][0] == together[0][0]
    assert alone[1][0].item() == pytest.approx(together[1][0].item(), abs=1e-6)


@pytest.mark.parametrize(("temperature", "top_p"), [(1.0, 1.0), (0.5, 0.9), (0.0, 1.0)])
def test_shared_distribution_draws_equal_copies(temperature: float, top_p: float) -> None:
    logits = torch.randn(3, 11, generator=torch.Generator().manual_seed(0))
    rows = torch.tensor([2, 0, 2, 1, 2])
    uniforms = torch.linspace(0, 0.99, len(rows), dtype=torch.float64)
    shared = draw_tokens(logits, uniforms, temperature, top_p, rows)
    copied = draw_tokens(logits[rows], uniforms, temperature, top_p)
    assert torch.equal(shared[0], copied[0])
    assert torch.equal(shared[1], copied[1])


@pytest.mark.gpu
def test_gpu_single_row_sum_is_deterministic():
    probs_AV = torch.randn(1, 151_936, generator=torch.Generator().manual_seed(0)).softmax(-1).cuda()
    assert len({cumulative(probs_AV).cpu().numpy().tobytes() for _ in range(100)}) == 1
