"""Measurements of objectives as metrics, and read back."""

import numpy as np

from starpo.ragen.learning.learners.gradient_spread import GradientSpread
from starpo.ragen.learning.learners.measured_objectives import MeasuredObjectives
from starpo.ragen.learning.metrics.objectives import compared, objective_metrics

MEASURED = MeasuredObjectives(
    [GradientSpread(3, 2.0, -1.0, 4.0), GradientSpread(3, 1.0, 0.5, 2.0), GradientSpread(3, 0.0, 0.0, 0.0)],
    np.array([[4.0, -1.0, 0.0], [-1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]),
)
NAMES = ["run", "other", "none"]


def test_metrics_by_hand() -> None:
    """Cosine -1 / (2 * 1), signal over noise -1 / 4; undefined values are absent."""
    values = objective_metrics(NAMES, MEASURED)
    assert values["objectives/run/cosine/other"] == values["objectives/other/cosine/run"] == -0.5
    assert values["objectives/run/signal_to_noise"] == -0.25
    assert not {f"objectives/none/{name}" for name in ("signal_to_noise", "cosine/none")} & set(values)
    assert np.isfinite(list(values.values())).all()


def test_they_are_read_back_in_the_order_asked_for() -> None:
    values = {**objective_metrics(NAMES, MEASURED), "update/entropy": 1.0}
    found = compared(values, ["other", "run"])
    assert list(found.values) == list(found.cosines["run"]) == ["other", "run"]
    assert found.values["other"] == {"norm": 1.0, "num_groups": 3, "signal_to_noise": 0.25}
