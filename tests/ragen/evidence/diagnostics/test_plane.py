"""Path of a run over RAGEN-2's plane: regimes relative to the first probe, and the drawing."""

from starpo.ragen.evidence.diagnostics.plane import Point, draw_plane, path

ROWS = "reasoning/first_turn/token"


def probes(*values: tuple[float, float]) -> dict[str, dict[int, float]]:
    return {
        f"{ROWS}/conditional_entropy": {10 * n: diversity for n, (diversity, _) in enumerate(values)},
        f"{ROWS}/mutual_information": {10 * n: dependence for n, (_, dependence) in enumerate(values)},
        f"{ROWS}/retrieval_at_1_above_chance": {0: 0.8},
    }


def test_regimes_are_beside_the_first_probe() -> None:
    points = path(probes((0.4, 2.0), (0.2, 1.9), (0.19, 1.0), (0.5, 0.9), (0.1, 0.1)))
    assert [point.iteration for point in points] == [0, 10, 20, 30, 40]
    assert [point.regime for point in points] == ["diverse", "diverse", "specialised", "template", "collapsed"]
    assert points[0].retrieval == 0.8
    assert points[-1].words == "at iteration 40 collapsed: one reasoning for all"


def test_a_run_that_began_without_dependence_is_not_divided_by_nothing() -> None:
    assert [point.regime for point in path(probes((0.4, 0.0), (0.4, 0.3)))] == ["diverse", "diverse"]


def test_without_probes_there_is_no_path() -> None:
    assert path({}) == path({f"{ROWS}/conditional_entropy": {0: 1.0}}) == []


def test_the_picture_says_where_and_when_and_is_the_same_each_time() -> None:
    points = path(probes((0.4, 2.0), (0.2, 1.9), (0.1, 0.1)))
    drawn = draw_plane("a <run>", points)
    assert drawn == draw_plane("a <run>", points)
    for text in ("Reasoning of a &lt;run&gt;", ">0</text>", ">10</text>", ">20</text>", "the same for every prompt"):
        assert text in drawn
    assert draw_plane("flat", [Point(0, 0.0, 0.0, 0.0, "diverse")]).startswith("<svg")
