"""Buckets of groups by reward std, and the spread of gradients, by hand."""

import math

import pyarrow as pa
import pytest
import torch

from starpo.ragen.learning.learners.gradient_spread import GradientSpread, spread
from starpo.ragen.learning.metrics.gradients import buckets, gradient_metrics


def selection(*stds: float, num_valid: int = 4) -> pa.Table:
    ids = [f"g{number}" for number in range(len(stds))]
    return pa.table({"group_id": ids, "return_std": stds, "num_valid": [num_valid] * len(stds)})


def test_buckets_are_deviation_quantiles() -> None:
    assert buckets(selection(5.0, 4.0, 3.0, 2.0, 1.0, 0.0)) == [["g5"], ["g4"], ["g3"], ["g2"], ["g1"], ["g0"]]
    assert [len(bucket) for bucket in buckets(selection(*range(48)))] == [8] * 6


def test_groups_of_equal_deviation_stay_together() -> None:
    assert buckets(selection(0.0, 0.0, 0.0, 0.0, 1.0, 2.0)) == [["g0", "g1", "g2", "g3"], [], [], [], ["g4"], ["g5"]]
    assert buckets(selection(0.0, 5e-17, 1e-16, 0.0, 1.0, 2.0))[0] == ["g0", "g1", "g2", "g3"]  # equal but for rounding


def test_groups_without_valid_trajectory_excluded() -> None:
    both = pa.concat_tables([selection(0.0, num_valid=0), selection(1.0)])
    assert sum(map(len, buckets(both))) == 1
    assert buckets(selection(num_valid=0)) == [[]] * 6


def test_the_spread_of_two_gradients() -> None:
    """The mean is (2, 0) with norm 2, and each gradient is at distance 1: noise 2, signal 4 - 2/2 = 3."""
    statistics = spread([torch.tensor([2.0, 1.0]), torch.tensor([2.0, -1.0])])
    assert (statistics.num, statistics.norm, statistics.signal, statistics.noise) == (2, 2.0, 3.0, 2.0)
    assert statistics.signal_to_noise == 1.5


def test_the_signal_is_without_bias() -> None:
    """For gradients with expectation 0, the norm of the mean is positive, but the estimated signal averages to 0."""
    torch.manual_seed(0)
    samples = [spread(torch.randn(8, 50)) for _ in range(400)]
    assert sum(of.norm**2 for of in samples) / 400 == pytest.approx(50 / 8, rel=0.05)
    assert abs(sum(of.signal for of in samples) / 400) < 0.2
    assert sum(of.noise for of in samples) / 400 == pytest.approx(50, rel=0.02)


def test_single_gradient_has_no_noise() -> None:
    statistics = spread([torch.tensor([3.0, 4.0])])
    assert (statistics.num, statistics.norm) == (1, 5.0)
    assert math.isnan(statistics.signal)
    assert math.isnan(statistics.signal_to_noise)
    assert (spread([]).num, spread([]).norm) == (0, 0.0)


def test_equal_gradients_have_no_noise() -> None:
    """The sums round differently, which is not noise to divide by."""
    torch.manual_seed(0)
    samples = [spread([gradient] * 7) for gradient in torch.randn(20, 9)]
    assert [of.noise for of in samples] == [0.0] * 20
    assert all(math.isnan(of.signal_to_noise) for of in samples)


def test_metrics_of_buckets() -> None:
    groups = [["g0"], [], ["g1", "g2"]]
    many = {"task": GradientSpread(2, 0.5, 0.2, 0.4), "entropy": GradientSpread(2, 0.1, -0.1, 0.4)}
    spreads = [{"task": GradientSpread(1, 0.0, math.nan, math.nan)}, {"task": spread([])}, many]
    values = gradient_metrics(selection(0.0, 1.0, 2.0), groups, spreads)
    assert values == {
        "gradients/bucket_1/num_groups": 1,
        "gradients/bucket_1/reward_std": 0.0,
        "gradients/bucket_1/task_norm": 0.0,
        "gradients/bucket_3/num_groups": 2,
        "gradients/bucket_3/reward_std": 1.5,
        "gradients/bucket_3/task_norm": 0.5,
        "gradients/bucket_3/task_snr": pytest.approx(0.5),
        "gradients/bucket_3/entropy_norm": 0.1,
        "gradients/bucket_3/entropy_snr": 0.0,
    }
