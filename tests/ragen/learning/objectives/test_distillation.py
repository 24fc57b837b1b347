"""The teacher's advantages: a number by hand, loops over lists, and the divergence whose gradient they estimate."""

import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from starpo.ragen.learning.objectives.distillation import distilled

REALS = st.floats(-20, 0, width=32)


def of_lists(rewards, teacher, old, mask, coefficient, reward_coefficient):
    """Naive twin."""
    return [
        reward_coefficient * a + (coefficient * (t - o) if m else 0.0)
        for a, t, o, m in zip(rewards, teacher, old, mask, strict=True)
    ]


def test_number_computed_by_hand() -> None:
    # the teacher finds the first token twice as probable as the policy: log 2; the second half as probable: -log 2
    teacher, old = torch.tensor([0.5, 0.125, 0.9]).log(), torch.tensor([0.25, 0.25, 0.1]).log()
    mask = torch.tensor([True, True, False])
    advantages = distilled(torch.tensor([1.0, 1.0, 0.0]), teacher, old, mask, 2.0, 0.5)
    expected = torch.tensor([0.5 + 2 * math.log(2), 0.5 - 2 * math.log(2), 0.0])
    torch.testing.assert_close(advantages, expected)


@given(st.lists(st.tuples(REALS, REALS, REALS, st.booleans()), min_size=1), st.floats(0, 5), st.floats(0, 5))
def test_equals_loops_over_lists(tokens, coefficient, reward_coefficient) -> None:
    rewards, teacher, old, mask = zip(*tokens, strict=True)
    advantages = distilled(*map(torch.tensor, (rewards, teacher, old, mask)), coefficient, reward_coefficient)
    expected = of_lists(rewards, teacher, old, mask, coefficient, reward_coefficient)
    torch.testing.assert_close(advantages, torch.tensor(expected), atol=1e-4, rtol=1e-4)


def test_gradient_is_that_of_reverse_kl() -> None:
    generator = torch.Generator().manual_seed(0)
    logits_V, teacher_V = (torch.randn(7, generator=generator, dtype=torch.float64) for _ in range(2))
    logits_V.requires_grad_()
    logprobs_V, teacher_V = logits_V.log_softmax(0), teacher_V.log_softmax(0)
    kl = (logprobs_V.exp() * (logprobs_V - teacher_V)).sum()
    (of_kl_V,) = torch.autograd.grad(kl, logits_V, retain_graph=True)
    old_V = logprobs_V.detach()
    advantages_V = distilled(torch.zeros(7), teacher_V, old_V, torch.ones(7, dtype=torch.bool), 1.0, 0.0)
    objective = (old_V.exp() * advantages_V * logprobs_V).sum()  # the expectation over sampled tokens, exactly
    (of_objective_V,) = torch.autograd.grad(objective, logits_V)
    torch.testing.assert_close(of_objective_V, -of_kl_V)
    assert float(of_kl_V.norm()) > 0.01
