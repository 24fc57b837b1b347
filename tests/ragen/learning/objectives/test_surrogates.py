"""Ratios and surrogates: hand-computed numbers, gradients and extremes."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from starpo.ragen.config.objective import ObjectiveConfig
from starpo.ragen.core.lookup import load
from starpo.ragen.core.registry import SURROGATES
from starpo.ragen.learning.objectives.ratios import RATIOS, log_ratio, probability_ratio
from starpo.ragen.learning.objectives.surrogates import SurrogateInputs, SurrogateTerms, covariances

ALL = sorted(SURROGATES)


def options_of(name: str) -> dict:
    return dict(ObjectiveConfig(advantage="grpo", surrogate=name).surrogate_options)


def terms(
    name, ratios, advantages, *, ratio="token", units=None, options=None, ranks=None, covariance=None, rounding=0.0
):
    """Evaluate a surrogate on tokens with these ratios, in float64; also return the log-probs, with their graph."""
    advantages = torch.tensor(advantages, dtype=torch.float64)
    logprobs = torch.tensor([math.log(r) - 3 for r in ratios], dtype=torch.float64, requires_grad=True)
    logs = log_ratio(logprobs, torch.full_like(advantages, -3))
    unit = torch.zeros(len(ratios), dtype=torch.int64) if units is None else torch.tensor(units)
    inputs = SurrogateInputs(
        logprobs_M=logprobs,
        log_ratio_M=logs,
        ratio_M=RATIOS[ratio](logs, unit),
        advantages_M=advantages,
        sequence_M=unit,
        clip_low=0.2,
        clip_high=0.28,
        covariance_M=torch.tensor(covariance or [0.0] * len(ratios), dtype=torch.float64),
        covariance_rank_M=torch.tensor(ranks or [0.5] * len(ratios), dtype=torch.float64),
        options=options_of(name) | (options or {}),
        rounding=rounding,
    )
    result: SurrogateTerms = load(SURROGATES, name)(inputs)
    return result, logprobs


def close(actual, expected):
    assert_close(actual, torch.tensor(expected, dtype=torch.float64))


def test_ppo_by_hand():
    # bounds 0.8 and 1.28; A > 0: min(3, 2.56); A < 0: min(-3, -2.56); min(1, 1.6); min(-1, -1.6); inside: 3.3; A = 0
    result, _ = terms("ppo", [1.5, 1.5, 0.5, 0.5, 1.1, 1.5, 0.5], [2.0, -2.0, 2.0, -2.0, 3.0, 0.0, 0.0])
    close(result.loss_M.detach(), [-2.56, 3.0, -1.0, 1.6, -3.3, 0.0, 0.0])
    assert result.is_low_M.nonzero().tolist() == [[3]]
    assert result.is_high_M.nonzero().tolist() == [[0]]


def test_loop_symmetric_in_log_ratio():
    # bounds 1 / 1.28 = 0.78125 and 1.28: a ratio of 0.79 is inside, where PPO's 0.8 clips it
    result, _ = terms("loop", [0.79, 0.5, 1.5], [-1.0, -1.0, 1.0])
    close(result.loss_M.detach(), [0.79, 0.78125, -1.28])
    assert result.is_low_M.tolist() == [False, True, False]
    assert result.is_high_M.tolist() == [False, False, True]


def test_dual_clip_bounds_negative_advantage_loss():
    # ratio 5, A -2: PPO's term is 10, three times the advantage 6; ratio 2: 4 stays; A 0: nothing to bound
    result, logprobs = terms("dual_clip", [5.0, 2.0, 5.0], [-2.0, -2.0, 0.0])
    close(result.loss_M.detach(), [6.0, 4.0, 0.0])
    assert result.is_high_M.tolist() == [True, False, False]
    result.loss_M.sum().backward()
    assert logprobs.grad.tolist() == pytest.approx([0, 4, 0])


def test_cispo_clips_weight_keeps_gradient():
    # weights 1.28 and 0.8: the gradient of -w * A * log pi is -w * A
    result, logprobs = terms("cispo", [1.5, 0.5], [1.0, 1.0])
    result.loss_M.sum().backward()
    assert logprobs.grad.tolist() == pytest.approx([-1.28, -0.8])
    assert (result.is_low_M.tolist(), result.is_high_M.tolist()) == ([False, True], [True, False])


def test_sapo_by_hand():
    # tau 1: 4 * sigmoid(0.5) = 2.48984; tau 1.05: 4 / 1.05 * sigmoid(1.05 * -0.5) = 1.41594
    result, _ = terms("sapo", [1.5, 0.5], [1.0, -1.0])
    assert result.loss_M.tolist() == pytest.approx([-2.48984, 1.41594], abs=1e-5)


def test_gmpo_by_hand():
    # log 1.5 = 0.405 is clipped to 0.4 where A > 0; log 0.5 = -0.693 to -0.4 where A < 0
    up, logprobs = terms("gmpo", [1.5, 0.5], [1.0, 1.0])
    assert up.loss_M.tolist() == pytest.approx([-math.exp((0.4 + math.log(0.5)) / 2)] * 2)
    assert up.loss_M.tolist() == pytest.approx([-0.86366] * 2, abs=1e-5)
    up.loss_M.sum().backward()
    assert logprobs.grad.tolist() == pytest.approx([0, -0.86366], abs=1e-5)  # none at the clipped token
    down, _ = terms("gmpo", [1.5, 0.5], [-1.0, -1.0])
    assert down.loss_M.tolist() == pytest.approx([1.00274] * 2, abs=1e-5)
    level, _ = terms("gmpo", [1.5, 0.5], [0.0, 0.0])  # as where A < 0
    assert (level.is_low_M.tolist(), level.is_high_M.tolist()) == ([False, True], [False, False])


def test_ratios_of_units_by_hand():
    # 1.5 and 0.5: geometric sqrt(0.75) = 0.86603, arithmetic 1.0; the third token is a unit of its own
    logs = torch.tensor([1.5, 0.5, 2.0], dtype=torch.float64).log()
    unit = torch.tensor([7, 7, 9])
    close(RATIOS["token"](logs, unit), [1.5, 0.5, 2.0])
    close(RATIOS["turn_geometric"](logs, unit), [math.sqrt(0.75), math.sqrt(0.75), 2.0])
    close(RATIOS["sequence"](logs, unit), [math.sqrt(0.75), math.sqrt(0.75), 2.0])
    close(RATIOS["turn_arithmetic"](logs, unit), [1.0, 1.0, 2.0])


@pytest.mark.parametrize("ratio", ["turn_geometric", "turn_arithmetic"])
def test_shared_advantage_gradient_is_own_term(ratio):
    """The expected gradient is that of the mean itself, by autograd, for one unit of three tokens with A = 2."""
    logs = torch.tensor([0.1, -0.2, 0.15], dtype=torch.float64, requires_grad=True)
    mean = logs.mean().exp() if ratio == "turn_geometric" else logs.exp().mean()
    (expected,) = torch.autograd.grad(3 * 2 * mean, logs)  # the term is on each of the three tokens
    (gradient,) = torch.autograd.grad((2 * RATIOS[ratio](logs, torch.zeros(3, dtype=torch.int64))).sum(), logs)
    assert_close(gradient, expected)


def test_clip_cov_silences_the_chosen_tokens():
    result, logprobs = terms(
        "clip_cov", [1.1, 1.1, 1.1, 1.1], [1.0] * 4, ranks=[0.0, 0.25, 0.4, 0.5], covariance=[9.0, 2.0, 0.5, 2.0],
        options={"share": 0.5, "low": 1.0, "high": 5.0},
    )  # fmt: skip
    result.loss_M.sum().backward()
    assert (logprobs.grad == 0).tolist() == [False, True, False, False]  # above 5; chosen; below 1; not in the share
    assert result.is_high_M.tolist() == [False, True, False, False]


def test_clip_cov_token_counts_clipped_once():
    # both are below 0.8 with a negative advantage, and the first is also among the chosen
    options = {"share": 0.5, "low": 1.0, "high": 5.0}
    result, _ = terms("clip_cov", [0.5, 0.5], [-1.0, -1.0], ranks=[0.0, 0.5], covariance=[2.0, 2.0], options=options)
    assert (result.is_low_M.int() + result.is_high_M.int()).tolist() == [1, 1]


def test_kl_cov_holds_the_chosen_tokens():
    # -0.5 and -1.1; the first also gets 2 * |log 0.5|
    options = {"share": 0.5, "coefficient": 2.0}
    result, _ = terms("kl_cov", [0.5, 1.1], [1.0, 1.0], ranks=[0.0, 0.5], options=options)
    assert result.loss_M.tolist() == pytest.approx([-0.5 + 2 * math.log(2), -1.1])


def test_kl_cov_rounding_ratio_no_gradient():
    ratios = torch.tensor([-2e-4, -1e-5, 1e-5, 2e-4]).exp().tolist()
    result, logprobs = terms("kl_cov", ratios, [0.0] * 4, ranks=[0.0] * 4, rounding=1e-4)
    result.loss_M.sum().backward()
    assert logprobs.grad.tolist() == pytest.approx([-1, 0, 0, 1])


def test_covariances_by_hand():
    # log-probs -1, -2, -3 (mean -2), advantages 3, 0, 0 (mean 1): (1)(2) = 2, 0, (-1)(-1) = 1
    covariance, rank = covariances(torch.tensor([-1.0, -2.0, -3.0]), torch.tensor([3.0, 0.0, 0.0]))
    assert covariance.tolist() == [2, 0, 1]
    assert rank.tolist() == pytest.approx([0, 2 / 3, 1 / 3])


@pytest.mark.parametrize("name", ALL)
def test_first_step_is_policy_gradient(name):
    """At ratio 1 a token's gradient is minus its advantage for every surrogate; kl_cov's penalty has none there."""
    result, logprobs = terms(name, [1.0, 1.0, 1.0], [2.0, -3.0, 0.5], units=[0, 1, 1], ranks=[0.9] * 3)
    result.loss_M.sum().backward()
    assert logprobs.grad.tolist() == pytest.approx([-2.0, 3.0, -0.5])


@pytest.mark.parametrize("name", ALL)
def test_no_gradient_flows_into_advantages(name):
    advantages = torch.ones(3, requires_grad=True)
    logprobs = torch.zeros(3, requires_grad=True)
    logs = log_ratio(logprobs, torch.zeros(3))
    unit, zeros = torch.zeros(3, dtype=torch.int64), torch.zeros(3)
    inputs = SurrogateInputs(logprobs, logs, logs.exp(), advantages, unit, 0.2, 0.2, zeros, zeros, options_of(name))
    load(SURROGATES, name)(inputs).loss_M.sum().backward()
    assert advantages.grad is None


@pytest.mark.parametrize("name", ALL)
@given(st.floats(-1000, 0), st.floats(-1000, 0), st.floats(-1e6, 1e6))
def test_loss_and_gradient_always_finite(name, policy, old, advantage):
    logprobs = torch.tensor([policy], requires_grad=True)
    logs = log_ratio(logprobs, torch.tensor([old]))
    unit, zeros = torch.zeros(1, dtype=torch.int64), torch.zeros(1)
    inputs = SurrogateInputs(
        logprobs, logs, logs.exp(), torch.tensor([advantage]), unit, 0.2, 0.28, zeros, zeros, options_of(name)
    )
    loss = load(SURROGATES, name)(inputs).loss_M.sum()
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(logprobs.grad).all()


@given(st.lists(st.floats(-100, 0), min_size=1, max_size=8))
def test_equal_policies_have_ratio_1(logprobs):
    logprobs = torch.tensor(logprobs)
    assert probability_ratio(logprobs, logprobs).tolist() == [1.0] * len(logprobs)
    for ratio in RATIOS.values():
        units = torch.arange(len(logprobs)) // 2
        assert ratio(log_ratio(logprobs, logprobs), units).tolist() == [1.0] * len(logprobs)
