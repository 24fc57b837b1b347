"""I(X; Z) and H(Z|X) against success."""

import pytest

from starpo.ragen.learning.control.collapse import SUCCESS
from starpo.ragen.studies.figures.correlations import (
    dependence_tables,
    dependence_verdicts,
    draw_dependence,
    points,
)
from tests.ragen.pictures import texts

MI, H = (f"reasoning/first_turn/token/{name}" for name in ("mutual_information", "conditional_entropy"))


def run(shift: float) -> dict[str, dict[int, float]]:
    """Probes at every fifth of twenty iterations: success and I(X; Z) rise, H(Z|X) falls."""
    probes = range(0, 20, 5)
    return {
        MI: {at: shift + 0.1 * at for at in probes},
        H: {at: shift - 0.1 * at for at in probes},
        SUCCESS: {at: 0.04 * at for at in range(20)},
    }


@pytest.fixture
def result(study):
    return study("dependence", {"a": {0: run(0.0), 1: run(0.01)}, "b": {0: run(0.02)}})


def test_a_probe_is_a_point_at_the_success_of_its_iteration(result) -> None:
    first, second = points(result.cells[0], MI)
    assert first[0].tolist() == pytest.approx([0.5, 1.0, 1.5])  # without the warm start's probe, which all cells share
    assert first[1].tolist() == pytest.approx([0.2, 0.4, 0.6])
    assert second[0][0] == pytest.approx(0.51)


def test_success_goes_with_dependence_and_against_diversity(result) -> None:
    (verdict,) = dependence_verdicts(result).values()
    assert verdict.startswith("shows (rank correlation +0.9")
    ((_, rows, _),) = dependence_tables(result)
    assert [row["probes"] for row in rows] == ["9", "9"]
    assert "correlation -0.9" in rows[1]["with success"]


def test_without_probes_nothing_is_measured(study) -> None:
    nothing = study("dependence", {"a": {0: {}}, "b": {}})
    assert list(dependence_verdicts(nothing).values()) == ["not measured"]
    assert "no clear ordering" in texts(draw_dependence(nothing))
