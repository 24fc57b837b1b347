"""Measurements of objectives as metrics, by hand."""

import numpy as np

from starpo.ragen.learning.learners.gradient_spread import GradientSpread
from starpo.ragen.learning.learners.measuring import MeasuredObjectives
from starpo.ragen.learning.metrics.objectives import objective_metrics

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
