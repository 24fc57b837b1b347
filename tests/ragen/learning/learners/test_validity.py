"""Distance of a policy from the behaviour policy: hand-computed numbers, and properties that hold for any weights."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from starpo.ragen.learning.learners.data.tokens import ResponseTokens
from starpo.ragen.learning.learners.data.trajectories import Segment, Trajectory
from starpo.ragen.learning.learners.validity import effective_sample_size, validity

log_weights = st.lists(st.floats(-30, 30), min_size=1, max_size=20)


def trajectory(name: str, logprobs: list[float]) -> Trajectory:
    """Trajectory of one turn: a prompt token, then a response token for each log-probability."""
    mask = np.array([False] + [True] * len(logprobs))
    segments = (
        Segment(np.zeros(len(mask), dtype=np.int64), mask, np.array([0, *logprobs], dtype=np.float32), mask - 1, mask),
    )
    turn = np.zeros(1, int), np.zeros(1, bool), np.ones(1)
    return Trajectory(name, "g", segments if logprobs else (), np.array([0.0]), 0.0, 0.0, *turn)


def tokens(*logprobs: list[float]) -> ResponseTokens:
    return ResponseTokens([trajectory(str(index), values) for index, values in enumerate(logprobs)])


def test_hand_computed() -> None:
    """Two trajectories with ratios (1, 1) and (1, 2); all advantages positive, clip at 1.2."""
    behaviour = [[-2.0, -2.0], [-2.0, -2.0]]
    policy = torch.tensor([-2.0, -2.0, -2.0, -2.0 + math.log(2)])
    values = validity(tokens(*behaviour), policy, torch.ones(4), 0.2, 0.2)
    assert values["effective_sample_size_tokens"] == pytest.approx(25 / (4 * 7))  # (1+1+1+2)^2 / (4 (1+1+1+4))
    assert values["effective_sample_size_trajectories"] == pytest.approx(9 / (2 * 5))  # (1+2)^2 / (2 (1+4))
    assert values["clip_share"] == 0.25
    assert values["kl"] == pytest.approx((2 - 1 - math.log(2)) / 4)
    assert values["ratio_q50"] == pytest.approx(1)
    assert values["ratio_q95"] == pytest.approx(1.85)  # 0.95 * 3 = 2.85: between the third and fourth of 1 1 1 2
    assert list(values) == [
        "ratio_q01", "ratio_q05", "ratio_q50", "ratio_q95", "ratio_q99",
        "effective_sample_size_tokens", "effective_sample_size_trajectories", "clip_share", "kl",
    ]  # fmt: skip


def test_unscored_tokens_are_left_out() -> None:
    advantages, nan = torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0]), math.nan
    policy = torch.tensor([nan, nan, -2.0, -2.5, nan])
    statistics = validity(tokens([-1.0, -3.0], [-2.5, -2.0], [-0.5]), policy, advantages, 0.2, 0.2)
    assert statistics == validity(tokens([-2.5, -2.0]), policy[2:4], advantages[2:4], 0.2, 0.2)


def test_clip_depends_on_advantage_sign() -> None:
    policy = torch.tensor([-2.0 + math.log(2), -2.0 - math.log(2)])
    both = tokens([-2.0, -2.0])
    assert validity(both, policy, torch.tensor([1.0, -1.0]), 0.2, 0.2)["clip_share"] == 1
    assert validity(both, policy, torch.tensor([-1.0, 1.0]), 0.2, 0.2)["clip_share"] == 0
    assert validity(both, policy, torch.zeros(2), 0.2, 0.2)["clip_share"] == 0
    assert validity(both, policy, torch.tensor([1.0, -1.0]), 0.2, 1.5)["clip_share"] == 0.5


def test_clip_share_excludes_tokens_without_loss() -> None:
    """Ratios 2, 1, 2 with positive advantages; the first token has no loss: 1 of 2 is clipped, not 2 of 3."""
    policy = torch.tensor([-2.0 + math.log(2), -2.0, -2.0 + math.log(2)])
    all_of, some = tokens([-2.0, -2.0, -2.0]), torch.tensor([False, True, True])
    assert validity(all_of, policy, torch.ones(3), 0.2, 0.2, some)["clip_share"] == 0.5
    assert validity(all_of, policy, torch.ones(3), 0.2, 0.2, torch.zeros(3, dtype=torch.bool))["clip_share"] == 0


def test_unchanged_policy_has_zero_distance() -> None:
    values = validity(tokens([-1.0, -3.0], [-0.5]), torch.tensor([-1.0, -3.0, -0.5]), torch.ones(3), 0.2, 0.2)
    assert values["kl"] == values["clip_share"] == 0
    assert {v for name, v in values.items() if name.startswith(("ratio", "effective"))} == {1.0}


def test_empty_trajectory_does_not_count() -> None:
    policy = torch.tensor([-1.0, -2.0])
    with_one, without = tokens([-1.0], [], [-1.0]), tokens([-1.0], [-1.0])
    assert validity(with_one, policy, torch.ones(2), 0.2, 0.2) == validity(without, policy, torch.ones(2), 0.2, 0.2)


def test_what_became_impossible_stays_finite() -> None:
    values = validity(tokens([-1.0, -700.0]), torch.tensor([-900.0, -1.0]), torch.ones(2), 0.2, 0.2)
    assert all(math.isfinite(value) for value in values.values())
    assert values["kl"] > 1e8


@given(log_weights, st.floats(-300, 300))
def test_effective_sample_size_bounds_and_invariance(weights: list[float], shift: float) -> None:
    size = effective_sample_size(torch.tensor(weights, dtype=torch.float64))
    assert 0 < size <= 1
    assert size >= 1 / len(weights) - 1e-9
    assert effective_sample_size(torch.tensor(weights, dtype=torch.float64) + shift) == pytest.approx(size, rel=1e-6)


@given(log_weights)
def test_effective_sample_size_is_kishs(weights: list[float]) -> None:
    w = np.exp(np.array(weights))
    expected = w.sum() ** 2 / (len(w) * (w**2).sum())
    assert effective_sample_size(torch.tensor(weights, dtype=torch.float64)) == pytest.approx(expected, rel=1e-9)


def test_update_reports_validity_before_and_after(policy_folder, make_trajectories, context) -> None:
    from starpo.ragen.config.update import OptimiserConfig, UpdateConfig
    from starpo.ragen.learning.learners.torch_learner import TorchLearner

    learner = TorchLearner(UpdateConfig(advantage="grpo", optimiser=OptimiserConfig(learning_rate=1e-2)), num_threads=1)
    learner.load(policy_folder, "start", None)
    first, second = (learner.update(make_trajectories(8), context).metrics for _ in range(2))

    def at(metrics: dict[str, float], when: str) -> dict[str, float]:
        prefix = f"update/validity_{when}/"
        return {name.removeprefix(prefix): value for name, value in metrics.items() if name.startswith(prefix)}

    assert len(at(first, "before")) == 9
    assert at(first, "after") == at(second, "before")
    assert at(first, "after") != at(first, "before")
