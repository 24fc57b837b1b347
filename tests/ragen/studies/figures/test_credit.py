"""Figure of estimators: a panel for each, the best first, with its turns and its best scale."""

import numpy as np
import pytest

from starpo.ragen.learning.metrics.credit_comparison import CreditComparison, compare_credit
from starpo.ragen.studies.figures.credit import draw_credit
from tests.ragen.learning.metrics.credit_tables import CREDITS, PLAYED, estimates
from tests.ragen.pictures import lines, texts


@pytest.fixture(scope="module")
def comparison() -> CreditComparison:
    return compare_credit(
        CREDITS,
        estimates(
            nothing=lambda row: 0.0,
            opposite=lambda row: -row["advantage"],
            half=lambda row: row["advantage"] / 2,
        ),
        PLAYED,
    )


def test_panels_are_best_first(comparison) -> None:
    shown = texts(draw_credit(comparison, "title").decode())
    assert [text for text in shown if text in ("half", "nothing", "opposite")] == ["half", "nothing", "opposite"]
    assert [text for text in shown if text.startswith("rho")] == [
        "rho 1.00 [1.00, 1.00]", "rho 0.00 [0.00, 0.00]", "rho -1.00 [-1.00, -1.00]"
    ]  # fmt: skip


def test_line_is_best_scale(comparison) -> None:
    """From the truth's least to its largest where the estimate is half of it; level where it is opposed."""
    perfect, nothing, opposed = lines(draw_credit(comparison, "title").decode(), "scale")
    heights = [start[1] - end[1] for start, end in (perfect, nothing, opposed)]
    assert heights[0] > 50
    assert heights[1:] == pytest.approx([0, 0])
    assert np.ptp([x for x, _ in nothing]) == pytest.approx(0)


@pytest.mark.parametrize(("form", "start"), [("svg", b"<svg"), ("pdf", b"%PDF")])
def test_pictures_repeat(comparison, form: str, start: bytes) -> None:
    once, again = (draw_credit(comparison, "title", form) for _ in range(2))
    assert once == again
    assert once.startswith(start)
