"""Measurements of objectives as metrics, read back and drawn."""

import numpy as np
import pytest

from starpo.ragen.evidence.diagnostics.objectives import compared, draw_cosines, objective_metrics
from starpo.ragen.evidence.report.objectives_page import render_objectives
from starpo.ragen.learning.learners.gradient_spread import GradientSpread
from starpo.ragen.learning.learners.measured_objectives import MeasuredObjective, MeasuredObjectives, Signs

HALF = Signs(4, 0.5, 0.25)
MEASURED = MeasuredObjectives(
    [
        MeasuredObjective(GradientSpread(3, 2.0, -1.0, 4.0), [1.5, 0.5], [0.75, 0.25], [HALF, HALF], {"think": HALF}),
        MeasuredObjective(GradientSpread(3, 1.0, 0.5, 2.0), [1.0, 0.5], [1.25, -0.25], [HALF, Signs(0, 0.0, 0.0)], {}),
        MeasuredObjective(GradientSpread(3, 0.0, 0.0, 0.0), [0.0, 0.0], [], [HALF, HALF], {}),
    ],
    np.array([[4.0, -1.0, 0.0], [-1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]),
)
NAMES = ["run", "other", "none"]


def test_metrics_by_hand() -> None:
    """Cosine -1 / (2 * 1), signal over noise -1 / 4; undefined values are absent."""
    values = objective_metrics(NAMES, MEASURED)
    assert values["objectives/run/cosine/other"] == values["objectives/other/cosine/run"] == -0.5
    assert values["objectives/run/signal_to_noise"] == -0.25
    assert values["objectives/run/think/positive"] == 0.5
    assert values["objectives/other/turn_1/num_tokens"] == 0
    absent = ["other/turn_1/positive", "none/signal_to_noise", "none/turn_0/share", "none/cosine/none"]
    assert not {f"objectives/{name}" for name in absent} & set(values)
    assert np.isfinite(list(values.values())).all()


def test_they_are_read_back_in_the_order_asked_for() -> None:
    values = {**objective_metrics(NAMES, MEASURED), "update/entropy": 1.0}
    found = compared(values, ["other", "run"])
    assert list(found.values) == list(found.cosines["run"]) == ["other", "run"]
    assert found.by_turn("other", "share") == [1.25, -0.25]
    assert found.by_turn("other", "positive") == [0.5]
    assert compared(values, NAMES).by_turn("none", "share") == []


def test_the_picture_and_the_page_are_the_same_again_and_hold_no_markup_of_others() -> None:
    found = compared(objective_metrics(NAMES, MEASURED), NAMES)
    picture = draw_cosines(found, "<img src=x> & co")
    assert picture == draw_cosines(found, "<img src=x> & co")
    assert "-0.50" in picture
    assert "<img src=x" not in picture
    page = render_objectives("<b>run</b>", "memory://", {3: found}, {"x": "<i>why</i>"}, {"y": ["a = <u>"]}, {4: "<s>"})
    for raw in ("<b>run", "<i>why", "<u>", "<s>"):
        assert raw not in page
    assert "&lt;i&gt;why" in page
    assert "50% / 25%" in page


def test_many_objectives_are_drawn_without_numbers() -> None:
    names = [f"o{number}" for number in range(20)]
    one = MEASURED.objectives[0]
    found = compared(objective_metrics(names, MeasuredObjectives([one] * 20, np.ones((20, 20)))), names)
    assert found.cosines["o0"]["o19"] == pytest.approx(1.0)
    assert "1.00" not in draw_cosines(found, "many")
