from datetime import UTC, datetime

import pytest

from starpo.flows.presets import preset
from starpo.ragen.agents.evaluation.comparison import PanelDifference
from starpo.ragen.evidence.report.curves import main_panels, other_panels, smoothed_line
from starpo.ragen.evidence.report.words import headline, strange_panels
from starpo.ragen.store.records.run import RunRecord


def test_evaluation_has_interval_unsmoothed() -> None:
    series = {
        "evaluation/sokoban/success": {0: 0.2, 5: 0.4},
        "evaluation/sokoban/success_low": {0: 0.1, 5: 0.3},
        "evaluation/sokoban/success_high": {0: 0.3, 5: 0.5},
    }
    (panel,) = main_panels(series)
    (line,) = panel.lines
    assert line.raw == [(0, 0.2), (5, 0.4)]
    assert line.band == [(0, 0.1, 0.3), (5, 0.3, 0.5)]
    assert line.smooth == []
    assert other_panels(series) == []


def test_trained_environment_comes_before_variants() -> None:
    series = {"evaluation/large/success": {0: 0.1}, "evaluation/sokoban/success": {0: 0.2, 5: 0.4}}
    assert [line.label for line in main_panels(series)[0].lines] == ["sokoban", "large"]


def test_curve_smoothed_by_five_point_means() -> None:
    values = [0.3, 0.3, 0.6, 0.3, 0.3, 0.3, 0.3, 0.65, 0.7, 0.76]
    line = smoothed_line("x", {3 + n: value for n, value in enumerate(values)})
    assert [x for x, _ in line.raw] == [x for x, _ in line.smooth] == list(range(3, 13))
    assert line.smooth[2][1] == pytest.approx(1.8 / 5)
    assert line.smooth[-3][1] == pytest.approx((0.3 + 0.3 + 0.65 + 0.7 + 0.76) / 5)


def test_smoothed_ends_follow_fitted_line() -> None:
    values = [0.0, 0.3, 0.1, 0.4, 0.2, *[0.5] * 4, 1.0]
    smooth = dict(smoothed_line("x", dict(enumerate(values))).smooth)
    # mean 0.2, slope (-2 * 0.0 - 1 * 0.3 + 1 * 0.4 + 2 * 0.2) / 10 = 0.05
    assert (smooth[0], smooth[1]) == pytest.approx((0.2 - 2 * 0.05, 0.2 - 0.05))
    # mean 0.6, slope (-2 * 0.5 - 1 * 0.5 + 1 * 0.5 + 2 * 1.0) / 10 = 0.1
    assert (smooth[8], smooth[9]) == pytest.approx((0.6 + 0.1, 0.6 + 2 * 0.1))


def test_smoothed_straight_line_does_not_lag() -> None:
    line = smoothed_line("x", {10 * n: 3.0 + n for n in range(12)})
    assert [y for _, y in line.smooth] == pytest.approx([y for _, y in line.raw])


def test_smoothed_ends_stay_in_range() -> None:
    smooth = smoothed_line("x", dict(enumerate([0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0]))).smooth
    assert smooth[0][1] == 0.0  # the line is at -0.2
    assert smooth[-1][1] == 1.0


def test_short_curve_shown_as_measured() -> None:
    assert smoothed_line("x", {n: 0.5 for n in range(9)}).smooth == []
    assert smoothed_line("x", {n: 0.5 for n in range(10)}).smooth != []


CHANGES = {
    "rose": (
        PanelDifference(0.5, 0.3, 0.7, 0.001, 24),
        "Success rose from 12.5% to 16.7% in 2 updates, by +50.0 points",
    ),
    "fell": (PanelDifference(-0.5, -0.7, -0.3, 0.001, 24), "Success fell from 12.5% to 16.7% in 2 updates, by -50.0"),
    "by chance": (
        PanelDifference(1 / 24, -0.08, 0.17, 1.0, 24),
        "Success was 12.5%, and is 16.7% after 2 updates: no change that can be told from chance, +4.2 points "
        "(95% interval -8.0 to +17.0, paired over 24 initial states).",
    ),
    "unread": (None, "Success was 12.5%, and is 16.7% after 2 updates: whether it changed is not known"),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_success_change_needs_paired_evidence(kind: str) -> None:
    change, expected = CHANGES[kind]
    series = {"evaluation/sokoban/success": {0: 3 / 24, 2: 4 / 24}}
    assert headline(series, "sokoban", {0: 0, 2: 2}, change).startswith(expected)


def test_gradient_norms_above_zero_are_logarithmic() -> None:
    assert main_panels({"update/gradient_norm": {0: 1.0, 1: 9.0}})[0].is_log
    assert not main_panels({"update/gradient_norm": {0: 0.0, 1: 9.0}})[0].is_log


def test_unknown_symbols_panel_expects_zero():
    config = preset("sokoban").model_dump(mode="json")
    run = RunRecord(name="a", flow="starpo", preset="sokoban", created=datetime(2026, 1, 1, tzinfo=UTC), config=config)
    remark = strange_panels(run)
    assert remark == "SokobanNewVocab: drawn in symbols not trained on, so low success, even 0%, is expected"
    (panel,) = main_panels({"evaluation/sokoban/success": {0: 0.5}}, remark)
    assert panel.note == f"share of the fixed panel, with the 95% interval; {remark}"
    assert strange_panels(run.model_copy(update={"config": config | {"policy": {"type": "pretrained"}}})) == ""
