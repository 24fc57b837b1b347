"""The divergences over a teacher's most probable tokens: numbers by hand, loops over lists, gradients."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from starpo.ragen.learning.objectives.distillation import distilled
from starpo.ragen.learning.objectives.divergence import DIVERGENCES, top_k_forward_kl, top_k_reverse_kl

SHARES = st.lists(st.tuples(st.floats(0.01, 1.0), st.floats(0.01, 1.0)), min_size=1, max_size=6)


def of_lists(name: str, policy: list[float], teacher: list[float]) -> float:
    """Naive twin, of probabilities."""
    pairs = [*zip(policy, teacher, strict=True), (1 - sum(policy), 1 - sum(teacher))]
    if name == "forward_kl":
        pairs = [(t, p) for p, t in pairs]
    return sum(p * math.log(p / t) for p, t in pairs)


def test_numbers_computed_by_hand() -> None:
    # (1/2, 1/8 | 3/8) against (1/4, 1/4 | 1/2)
    policy, teacher = torch.tensor([0.5, 0.125]).log(), torch.tensor([0.25, 0.25]).log()
    reverse = math.log(2) / 2 - math.log(2) / 8 + 3 / 8 * math.log(3 / 4)
    forward = -math.log(2) / 4 + math.log(2) / 4 + 1 / 2 * math.log(4 / 3)
    assert float(top_k_reverse_kl(policy, teacher)) == pytest.approx(reverse)
    assert float(top_k_forward_kl(policy, teacher)) == pytest.approx(forward)


@pytest.mark.parametrize("name", DIVERGENCES)
@given(SHARES)
def test_equals_loops_over_lists(name: str, shares: list[tuple[float, float]]) -> None:
    policy, teacher = ([part / (sum(parts) + 0.1) for part in parts] for parts in zip(*shares, strict=True))
    both = (torch.tensor(parts, dtype=torch.float64).log() for parts in (policy, teacher))
    divergence = float(DIVERGENCES[name](*both))
    assert divergence == pytest.approx(of_lists(name, policy, teacher), abs=1e-9)
    assert divergence >= -1e-12


@pytest.mark.parametrize("name", DIVERGENCES)
def test_other_tokens_merged_lower_it(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    policy_V, teacher_V = (torch.randn(9, generator=generator, dtype=torch.float64).log_softmax(0) for _ in range(2))
    of_k = []
    for k in (1, 3, 8):
        top = teacher_V.topk(k).indices
        of_k.append(float(DIVERGENCES[name](policy_V[top], teacher_V[top])))
    one_V, other_V = (policy_V, teacher_V) if name == "reverse_kl" else (teacher_V, policy_V)
    whole = float((one_V.exp() * (one_V - other_V)).sum())
    assert of_k == sorted(of_k)
    assert of_k[-1] == pytest.approx(whole)


def test_reverse_gradient_is_that_of_samples() -> None:
    generator = torch.Generator().manual_seed(1)
    logits_V, teacher_V = (torch.randn(6, generator=generator, dtype=torch.float64) for _ in range(2))
    logits_V.requires_grad_()
    logprobs_V, teacher_V = logits_V.log_softmax(0), teacher_V.log_softmax(0)
    (exact_V,) = torch.autograd.grad(top_k_reverse_kl(logprobs_V[:5], teacher_V[:5]), logits_V, retain_graph=True)
    old_V = logprobs_V.detach()
    advantages_V = distilled(torch.zeros(6), teacher_V, old_V, torch.ones(6, dtype=torch.bool), 1.0, 0.0)
    (of_samples_V,) = torch.autograd.grad((old_V.exp() * advantages_V * logprobs_V).sum(), logits_V)
    torch.testing.assert_close(exact_V, -of_samples_V)


def test_forward_gradient_is_difference_of_probabilities() -> None:
    logits_V = torch.tensor([2.0, 0.0, -8.0], dtype=torch.float64, requires_grad=True)
    teacher_V = torch.tensor([0.1, 0.1, 0.8], dtype=torch.float64)
    probs_V = logits_V.softmax(0)
    (gradient_V,) = torch.autograd.grad(top_k_forward_kl(probs_V.log()[:2], teacher_V.log()[:2]), logits_V)
    torch.testing.assert_close(gradient_V, (probs_V - teacher_V).detach())


@pytest.mark.parametrize("name", DIVERGENCES)
def test_certain_distributions_have_finite_gradients(name: str) -> None:
    logits_V = torch.tensor([60.0, 0.0, -60.0], requires_grad=True)
    teacher_2 = torch.tensor([0.0, -200.0])
    divergence = DIVERGENCES[name](logits_V.log_softmax(0)[:2], teacher_2)
    (gradient_V,) = torch.autograd.grad(divergence, logits_V)
    assert bool(torch.isfinite(gradient_V).all())
    assert float(divergence) == pytest.approx(0.0, abs=1e-5)
