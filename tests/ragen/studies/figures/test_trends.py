import pytest

from starpo.ragen.studies.figures.trends import Trend, judge_shrinking, trend_table, trends


def test_a_tenth_of_the_points_at_each_end(study) -> None:
    points = {at: float(at) for at in range(20)}
    cell = study("length", {"a": {0: {"m": points}, 1: {"m": {0: 5.0}}}}).cells[0]
    assert trends(cell, "m") == [Trend(0.5, 18.5)]  # (0 + 1) / 2, (18 + 19) / 2; one point is no trend


def test_a_run_that_goes_on_without_it_says_until_when(study) -> None:
    result = study(
        "length", {"a": {0: {"m": {0: 4.0, 1: 2.0}, "success": {0: 1.0, 9: 0.0}}, 1: {"m": {0: 4.0, 1: 3.0}}}}
    )
    assert trends(result.cells[0], "m") == [Trend(4.0, 2.0, until=1), Trend(4.0, 3.0)]
    table = trend_table(result, "m", "lengths", 1, "change", lambda trend: f"{trend.change:+.0%}")
    assert table.rows[0] == {"cell": "a", "first tenth": "4.0", "last tenth": "2.5", "change": "-50% (until 1) -25%"}


def test_a_change_is_a_share_of_the_beginning() -> None:
    assert Trend(4.0, 3.0).change == pytest.approx(-0.25)
    assert Trend(0.0, 3.0).change == 0.0


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([Trend(2, 1), Trend(3, 2)], "shows: smaller at the end in 2 of 2 seeds"),
        ([Trend(2, 1), Trend(2, 3)], "does not show: smaller at the end in 1 of 2 seeds"),
        ([Trend(1, 2), Trend(2, 3)], "the opposite shows: smaller at the end in 0 of 2 seeds"),
        ([Trend(1, 2), Trend(2, 2)], "does not show: smaller at the end in 0 of 2 seeds"),  # one is unchanged
        ([], "not measured"),
    ],
)
def test_it_shrinks_if_it_does_in_every_seed(found, said) -> None:
    assert judge_shrinking(found) == said
