"""Figure of several runs: curves, legend, and differences from the first."""

import pytest

from starpo.ragen.core.pictures import COLOURS
from starpo.ragen.studies.figures.comparison import Curve, draw_comparison
from starpo.ragen.studies.scores import Comparison
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


def test_legend_names_differing_settings() -> None:
    curves = [Curve(name, POINTS, {"filter.keep": keep}) for name, keep in (("a", "0.25"), ("b", "$0.5"))]
    assert {"a", "filter.keep = 0.25", "b", "filter.keep = $0.5"} <= set(texts(drawn(curves)))


def test_difference_is_filled_if_apart() -> None:
    """The first has none; p = 0.04 of the second is filled, p = 0.06 of the third hollow."""
    differences = [
        p_value
        and Comparison(
            mean=0.25, low=0.125, high=0.5, p_value=0.01, adjusted_p_value=p_value, num_pairs=8, num_up=3, num_down=1,
            num_needed=9,
        )
        for p_value in (None, 0.04, 0.06)
    ]  # fmt: skip
    picture = drawn([Curve(f"r{n}", POINTS, {}, of) for n, of in enumerate(differences)])
    second, third = lines(picture, "interval")
    assert second[0][0] == third[0][0]
    assert second[0][1] < third[0][1]  # in the order of the legend
    assert "#ffffff; stroke: " + COLOURS[2] in picture
    assert "#ffffff; stroke: " + COLOURS[1] not in picture
    assert lines(drawn([Curve("a", POINTS), Curve("b", POINTS)]), "interval") == []


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
