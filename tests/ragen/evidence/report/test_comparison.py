import pytest

from starpo.ragen.evidence.report.comparison import Curve, draw_comparison
from tests.ragen.pictures import lines, texts

POINTS = [(0.0, 0.25, 0.2, 0.3), (20.0, 0.75, 0.7, 0.8), (30.0, 0.5, 0.4, 0.6)]


def test_points_are_placed_by_updates_and_success() -> None:
    ((first, second, third),) = lines(draw_comparison([Curve("a-s0", "a", POINTS)], "title"), "curve")
    assert second[0] - first[0] == pytest.approx(2 * (third[0] - second[0]), rel=1e-3)
    assert first[1] - second[1] == pytest.approx(2 * (third[1] - second[1]), rel=1e-3)


def test_runs_of_one_preset_share_a_legend_entry() -> None:
    curves = [Curve("a-s0", "a", POINTS), Curve("a-s1", "a", POINTS), Curve("b-s0", "b", POINTS)]
    picture = draw_comparison(curves, "title")
    assert len(lines(picture, "curve")) == 3
    assert [text for text in texts(picture) if text in ("a", "b")] == ["a", "b"]


@pytest.mark.parametrize("name", ["<script>", "$x$", "a\x1b[31m\u202eb", "_hidden"])
def test_names_stay_text(name: str) -> None:
    picture = draw_comparison([Curve("run", name, POINTS)], name)
    assert "<script>" not in picture
    shown = name.replace("\x1b", "").replace("\u202e", "")
    assert texts(picture).count(shown) == 2
