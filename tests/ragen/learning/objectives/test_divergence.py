"""The divergence over a teacher's most probable tokens: numbers by hand, loops over lists, its gradient."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from starpo.ragen.learning.objectives.distillation import distilled
from starpo.ragen.learning.objectives.divergence import top_k_divergence

SHARES = st.lists(st.tuples(st.floats(0.01, 1.0), st.floats(0.01, 1.0)), min_size=1, max_size=6)


def of_lists(policy: list[float], teacher: list[float]) -> float:
    """Naive twin, of probabilities."""
    pairs = [*zip(policy, teacher, strict=True), (1 - sum(policy), 1 - sum(teacher))]
    return sum(p * math.log(p / t) for p, t in pairs)


def test_number_computed_by_hand() -> None:
    # (1/2, 1/4 | 1/4) against (1/4, 1/4 | 1/2): log(2) / 2 + 0 - log(2) / 4
    policy, teacher = torch.tensor([0.5, 0.25]).log(), torch.tensor([0.25, 0.25]).log()
    assert float(top_k_divergence(policy, teacher)) == pytest.approx(math.log(2) / 4)


@given(SHARES)
def test_equals_loops_over_lists(shares: list[tuple[float, float]]) -> None:
    policy, teacher = ([part / (sum(parts) + 0.1) for part in parts] for parts in zip(*shares, strict=True))
    both = (torch.tensor(parts, dtype=torch.float64).log() for parts in (policy, teacher))
    divergence = float(top_k_divergence(*both))
    assert divergence == pytest.approx(of_lists(policy, teacher), abs=1e-9)
    assert divergence >= -1e-12


def test_other_tokens_merged_lower_it() -> None:
    generator = torch.Generator().manual_seed(0)
    policy_V, teacher_V = (torch.randn(9, generator=generator, dtype=torch.float64).log_softmax(0) for _ in range(2))
    of_k = []
    for k in (1, 3, 8):
        top = teacher_V.topk(k).indices
        of_k.append(float(top_k_divergence(policy_V[top], teacher_V[top])))
    whole = float((policy_V.exp() * (policy_V - teacher_V)).sum())
    assert of_k == sorted(of_k)
    assert of_k[-1] == pytest.approx(whole)


def test_gradient_is_that_of_samples() -> None:
    generator = torch.Generator().manual_seed(1)
    logits_V, teacher_V = (torch.randn(6, generator=generator, dtype=torch.float64) for _ in range(2))
    logits_V.requires_grad_()
    logprobs_V, teacher_V = logits_V.log_softmax(0), teacher_V.log_softmax(0)
    (exact_V,) = torch.autograd.grad(top_k_divergence(logprobs_V[:5], teacher_V[:5]), logits_V, retain_graph=True)
    old_V = logprobs_V.detach()
    advantages_V = distilled(torch.zeros(6), teacher_V, old_V, torch.ones(6, dtype=torch.bool), 1.0, 0.0)
    (of_samples_V,) = torch.autograd.grad((old_V.exp() * advantages_V * logprobs_V).sum(), logits_V)
    torch.testing.assert_close(exact_V, -of_samples_V)


def test_certain_distributions_have_a_finite_gradient() -> None:
    logits_V = torch.tensor([60.0, 0.0, -60.0], requires_grad=True)
    teacher_2 = torch.tensor([0.0, -200.0])
    divergence = top_k_divergence(logits_V.log_softmax(0)[:2], teacher_2)
    (gradient_V,) = torch.autograd.grad(divergence, logits_V)
    assert bool(torch.isfinite(gradient_V).all())
    assert float(divergence) == pytest.approx(0.0, abs=1e-5)
