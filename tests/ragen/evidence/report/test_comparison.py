from xml.etree import ElementTree

import pytest

from starpo.ragen.core.errors import ConfigError
from starpo.ragen.evidence.report.comparison import Curve, draw_comparison

POINTS = [(0.0, 0.25, 0.2, 0.3), (20.0, 0.75, 0.7, 0.8)]
SVG = "{http://www.w3.org/2000/svg}"


def test_points_are_placed_by_updates_and_success() -> None:
    page = ElementTree.fromstring(draw_comparison([Curve("a-s0", "a", POINTS)], "title"))
    # 0 to 100% is y 340 to 64, 276 high: 25% at 340 - 69 = 271, 75% at 340 - 207 = 133; x from 56 to 736.
    assert page.find(f"{SVG}polyline").get("points") == "56.0,271.0 736.0,133.0"  # type: ignore[union-attr]


def test_runs_of_one_preset_share_a_colour_and_a_legend_entry() -> None:
    curves = [Curve("a-s0", "a", POINTS), Curve("a-s1", "a", POINTS), Curve("b-s0", "b", POINTS)]
    page = ElementTree.fromstring(draw_comparison(curves, "title"))
    colours = [line.get("stroke") for line in page.findall(f"{SVG}polyline")]
    assert colours[0] == colours[1] != colours[2]
    assert [t.text for t in page.findall(f"{SVG}text")][-2:] == ["a", "b"]


def test_names_are_escaped() -> None:
    page = draw_comparison([Curve("<script>", "<b>", POINTS)], "<i>")
    assert "<script>" not in page
    assert "<b>" not in page
    assert "<i>" not in page


def test_a_run_without_evaluation_is_named() -> None:
    with pytest.raises(ConfigError, match="no evaluation in empty"):
        draw_comparison([Curve("empty", "a", [])], "title")
