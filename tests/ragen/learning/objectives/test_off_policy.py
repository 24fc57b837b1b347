"""Terms for tokens of another policy: hand-computed numbers, and loops over Python lists."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from starpo.ragen.learning.objectives.off_policy import is_left_behind, reverse_kl

moves = st.lists(
    st.tuples(st.floats(-2, 2), st.floats(-2, 2), st.integers(0, 2)).filter(lambda t: t[1] != 0), min_size=1, max_size=9
)


def test_left_behind_by_hand():
    # sequence 0 has lost 0.2 and 0.6 nats, a mean of 0.4; sequence 1 0.2 and -0.1, a mean of 0.05
    lost, advantages = torch.tensor([0.2, 0.6, 0.2, -0.1]), torch.tensor([-1.0, 1.0, -1.0, -1.0])
    marked = is_left_behind(-3 - lost, torch.full((4,), -3.0), advantages, torch.tensor([0, 0, 1, 1]), 0.3)
    assert marked.tolist() == [True, False, False, False]


@pytest.mark.ci
@given(moves)
def test_left_behind_equals_naive_loop(tokens):
    lost, advantages, sequences = (list(column) for column in zip(*tokens, strict=True))
    expected = []
    for advantage, sequence in zip(advantages, sequences, strict=True):
        of_sequence = [gap for gap, other in zip(lost, sequences, strict=True) if other == sequence]
        expected.append(advantage < 0 and sum(of_sequence) / len(of_sequence) > 0.1003)
    given_ = (
        torch.tensor(lost, dtype=torch.float64),
        torch.tensor(advantages, dtype=torch.float64),
        torch.tensor(sequences),
    )
    assert is_left_behind(-given_[0], torch.zeros(len(lost)), *given_[1:], 0.1003).tolist() == expected


def test_reverse_kl_by_hand():
    # policy 0.4, reference 0.1, sampler 0.2: 2 * (0.25 - 1 + log 4) = 1.27259; gradient 2 * log 4 = 2.77259
    policy = torch.tensor(math.log(0.4), dtype=torch.float64, requires_grad=True)
    divergence = reverse_kl(policy, torch.tensor(math.log(0.1)), policy - math.log(0.2))
    divergence.backward()
    assert divergence.item() == pytest.approx(1.27259, abs=1e-5)
    assert policy.grad.item() == pytest.approx(2.77259, abs=1e-5)


@pytest.mark.ci
@given(*[st.lists(st.floats(0.05, 1), min_size=3, max_size=3)] * 3)
def test_reverse_kl_unbiased_whoever_samples(policy, reference, sampler):
    """Over all tokens of a vocabulary, weighted as the sampler draws them, value and gradient are the exact KL's."""
    logits = torch.tensor(policy, dtype=torch.float64).log().requires_grad_()
    logprobs = torch.log_softmax(logits, 0)
    ref, mu = (torch.tensor(values, dtype=torch.float64).log().log_softmax(0) for values in (reference, sampler))
    exact = (logprobs.exp() * (logprobs - ref)).sum()
    estimate = (mu.exp() * reverse_kl(logprobs, ref, logprobs - mu)).sum()
    assert estimate.item() == pytest.approx(exact.item(), abs=1e-9)
    gradients = [torch.autograd.grad(each, logits, retain_graph=True)[0] for each in (exact, estimate)]
    torch.testing.assert_close(*gradients)
