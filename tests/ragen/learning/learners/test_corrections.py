"""Corrections of the difference between sampler and learner, through the real learner."""

import math

import pytest
from pydantic import ValidationError

from starpo.ragen.config.update import UpdateConfig
from tests.ragen.learning.learners.test_objective import BASE, gradient, update
from tests.ragen.learning.learners.test_ratio import sampled_by


def test_sequence_weight_scales_its_gradient(policy_folder, make_trajectories, context):
    """Each token is 1.1 times as probable as when sampled; a sequence of n tokens has the weight 1.1^n, at most 1.3."""
    trajectories = sampled_by(math.log(1.1), policy_folder, make_trajectories(4, context="full"))
    lengths = [trajectory.num_response_tokens for trajectory in trajectories]
    settings = {"importance_cap": 1.3, "aggregation": "token_mean"}
    metrics = update(policy_folder, trajectories, context, importance_unit="sequence", **settings).metrics
    weights = [min(1.1**length, 1.3) for length in lengths]
    mean = sum(weight * length for weight, length in zip(weights, lengths, strict=True)) / sum(lengths)
    assert metrics["update/importance_mean"] == pytest.approx(mean, rel=1e-4)
    beyond = sum(length for length in lengths if 1.1**length > 1.3)
    assert metrics["update/importance_outside_share"] == pytest.approx(beyond / sum(lengths))
    geometric = {"importance_unit": "sequence_geometric", **settings}
    plain, weighted = (
        gradient(policy_folder, trajectories, context, **more) for more in ({"aggregation": "token_mean"}, geometric)
    )
    assert float(weighted.norm() / plain.norm()) == pytest.approx(1.1, rel=1e-4)


def test_masked_sequences_have_no_gradient(policy_folder, make_trajectories, context):
    trajectories = sampled_by(math.log(1.1), policy_folder, make_trajectories(4))
    settings = {"importance_cap": 1.05, "importance_unit": "sequence_geometric", "importance_outside": "mask"}
    metrics = update(policy_folder, trajectories, context, **settings).metrics
    assert metrics["update/importance_outside_share"] == 1
    assert metrics["update/gradient_norm"] == metrics["update/policy_loss"] == 0


def test_token_weights_report_nothing_new(policy_folder, make_trajectories, context):
    metrics = update(policy_folder, make_trajectories(4), context, importance_cap=2.0).metrics
    assert not [name for name in metrics if "importance" in name]


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"importance_unit": "sequence"}, "importance_cap = None computes none: set importance_cap"),
        ({"importance_floor": 0.5}, "importance_cap = None computes none"),
    ],
)
def test_corrections_without_effect_are_refused(settings, reason):
    with pytest.raises(ValidationError, match=reason):
        UpdateConfig(**{**BASE, **settings})
