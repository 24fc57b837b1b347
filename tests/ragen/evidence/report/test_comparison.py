import pytest

from starpo.ragen.core.pictures import COLOURS
from starpo.ragen.evidence.report.comparison import Curve, draw_comparison
from tests.ragen.pictures import lines, texts

POINTS = [(0.0, 0.25, 0.2, 0.3), (20.0, 0.75, 0.7, 0.8), (30.0, 0.5, 0.4, 0.6)]


def drawn(curves: list[Curve], title: str = "title") -> str:
    return draw_comparison(curves, title).decode()


def test_points_placed_by_updates_and_success() -> None:
    ((first, second, third),) = lines(drawn([Curve("a-s0", POINTS)]), "curve")
    assert second[0] - first[0] == pytest.approx(2 * (third[0] - second[0]), rel=1e-3)
    assert first[1] - second[1] == pytest.approx(2 * (third[1] - second[1]), rel=1e-3)


def test_every_run_has_colour_and_legend() -> None:
    names = [f"sokoban-s{seed}" for seed in range(len(COLOURS))]
    picture = drawn([Curve(name, POINTS) for name in names])
    assert len(lines(picture, "curve")) == len(names)
    assert [text for text in texts(picture) if text.startswith("sokoban")] == names
    assert all(colour in picture for colour in COLOURS)
    assert "stroke-dasharray" not in picture
    assert "stroke-dasharray" in drawn([Curve(name, POINTS) for name in [*names, "one more"]])


@pytest.mark.ci
@pytest.mark.parametrize(("form", "start"), [("svg", b"<svg"), ("pdf", b"%PDF"), ("png", b"\x89PNG")])
def test_pictures_in_every_form_repeat(form: str, start: bytes) -> None:
    once, again = (draw_comparison([Curve("a", POINTS)], "title", form) for _ in range(2))
    assert once.startswith(start)
    assert once == again


@pytest.mark.parametrize("name", ["<script>", "$x$", "a\x1b[31m\u202eb", "_hidden"])
def test_names_stay_text(name: str) -> None:
    picture = drawn([Curve(name, POINTS)], name)
    assert "<script>" not in picture
    shown = name.replace("\x1b", "").replace("\u202e", "")
    assert texts(picture).count(shown) == 2
