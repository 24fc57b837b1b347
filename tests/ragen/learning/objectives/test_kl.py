"""KL estimators: hand-computed, in expectation, and at the extremes."""

import math

import pytest
import torch
from torch.testing import assert_close

from starpo.ragen.learning.objectives.kl import KL_ESTIMATORS, k1, k2, k3

POLICY = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
REFERENCE = torch.tensor([0.45, 0.33, 0.22], dtype=torch.float64)


def test_by_hand():
    policy, ref = torch.tensor([math.log(0.5)]), torch.tensor([math.log(0.25)])
    # d = log(0.25 / 0.5) = -log 2
    assert k1(policy, ref).item() == pytest.approx(math.log(2))
    assert k2(policy, ref).item() == pytest.approx(math.log(2) ** 2 / 2)
    assert k3(policy, ref).item() == pytest.approx(0.5 - 1 + math.log(2))


def test_agree_in_expectation_under_the_policy():
    exact = (POLICY * (POLICY / REFERENCE).log()).sum()
    for estimator in (k1, k3):  # unbiased: exactly the divergence
        assert_close((POLICY * estimator(POLICY.log(), REFERENCE.log())).sum(), exact)
    # k2 is biased by a third-order term only, so it is close for similar policies
    assert_close((POLICY * k2(POLICY.log(), REFERENCE.log())).sum(), exact, rtol=0.05, atol=0)


@pytest.mark.parametrize("name", sorted(KL_ESTIMATORS))
def test_is_zero_for_equal_policies(name):
    assert KL_ESTIMATORS[name](POLICY.log(), POLICY.log()).tolist() == [0, 0, 0]


@pytest.mark.parametrize("name", ["k2", "k3"])
def test_is_never_negative(name):
    grid = torch.linspace(-30, 30, 121)
    assert (KL_ESTIMATORS[name](torch.zeros(121), grid) >= 0).all()


@pytest.mark.parametrize("name", sorted(KL_ESTIMATORS))
@pytest.mark.parametrize("gap", [-1000.0, 1000.0])
def test_finite_with_finite_gradient_at_extremes(name, gap):
    policy = torch.tensor([0.0], requires_grad=True)
    value = KL_ESTIMATORS[name](policy, torch.tensor([gap]))
    value.sum().backward()
    assert torch.isfinite(value).all()
    assert torch.isfinite(policy.grad).all()


def test_gradients_in_expectation():
    """k1's is 0, so k1 belongs in the reward. k2's is the divergence's, and k3's that of KL(reference || policy)."""
    logits = POLICY.log().clone().requires_grad_()
    log_ratios = torch.log_softmax(logits, 0) - REFERENCE.log()
    exact, reverse = torch.softmax(logits, 0) @ log_ratios, -REFERENCE @ log_ratios

    def mean_gradient(estimator):
        terms = estimator(torch.log_softmax(logits, 0), REFERENCE.log())
        return torch.autograd.grad((POLICY * terms).sum(), logits)[0]  # the sampling distribution is held fixed

    assert_close(mean_gradient(k1), torch.zeros(3, dtype=torch.float64))
    assert_close(mean_gradient(k2), torch.autograd.grad(exact, logits, retain_graph=True)[0])
    assert_close(mean_gradient(k3), torch.autograd.grad(reverse, logits)[0])
