"""Path of a run over RAGEN-2's plane: regimes relative to the first probe, and the drawing."""

from math import log

import pytest

from starpo.ragen.evidence.diagnostics.plane import Point, draw_plane, path

ROWS = "reasoning/first_turn/token"


def probes(*values: tuple[float, float], z: float = 1.0) -> dict[str, dict[int, float]]:
    """Return probes of 64 reasonings: diversity and dependence of each, and the z-score of all but dependence 0."""
    return {
        f"{ROWS}/conditional_entropy": {10 * n: diversity for n, (diversity, _) in enumerate(values)},
        f"{ROWS}/mutual_information": {10 * n: dependence for n, (_, dependence) in enumerate(values)},
        f"{ROWS}/mutual_information_z": {10 * n: z * (dependence > 0) for n, (_, dependence) in enumerate(values)},
        f"{ROWS}/mutual_information_bound": {10 * n: log(64) for n in range(len(values))},
        f"{ROWS}/retrieval_at_1_above_chance": {0: 0.8},
    }


def test_regimes_are_beside_the_first_probe() -> None:
    points = path(probes((0.4, 2.0), (0.2, 1.9), (0.19, 1.0), (0.5, 0.9), (0.1, 0.1)))
    assert [point.iteration for point in points] == [0, 10, 20, 30, 40]
    assert [point.regime for point in points] == ["baseline", "diverse", "specialised", "template", "collapsed"]
    assert (points[0].retrieval, points[0].standard_errors) == (0.8, pytest.approx(8.0))
    assert points[0].words == "at iteration 0: baseline, what later probes are compared with"
    assert points[-1].words == "at iteration 40: collapsed, one reasoning for all"


def test_two_noise_values_not_compared() -> None:
    points = path(probes((1.1, 0.0096), (1.2, 0.001), (1.2, 0.0099), z=0.02))
    assert [point.regime for point in points] == ["baseline", "unclear", "unclear"]
    assert "diverse" not in draw_plane("noise", points)


def test_dependence_at_chance_is_lost() -> None:
    series = probes((0.4, 2.0), (0.4, 1.5), (0.1, 1.5))
    series[f"{ROWS}/mutual_information_z"] |= {10: 0.24, 20: 0.24}
    assert [point.regime for point in path(series)] == ["baseline", "template", "collapsed"]


def test_picture_says_where_and_when() -> None:
    points = path(probes((0.4, 2.0), (0.2, 1.9), (0.1, 0.1)))
    drawn = draw_plane("a <run>", points)
    assert drawn == draw_plane("a <run>", points)
    for text in ("Reasoning of a &lt;run&gt;", ">0</text>", ">10</text>", ">20</text>", "the same for every prompt"):
        assert text in drawn
    assert draw_plane("flat", [Point(0, 0.0, 0.0, 0.0, 0.0, "baseline")]).startswith("<svg")
