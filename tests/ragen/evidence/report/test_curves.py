from datetime import UTC, datetime

import pytest

from starpo.flows.presets import preset
from starpo.ragen.agents.evaluation.comparison import PanelDifference
from starpo.ragen.evidence.report.curves import main_panels, other_panels, smoothed_line, training_band
from starpo.ragen.evidence.report.decisions import Decision
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
    line = smoothed_line("x", "x", {3 + n: value for n, value in enumerate(values)})
    assert [x for x, _ in line.raw] == [x for x, _ in line.smooth] == list(range(3, 13))
    assert line.smooth[2][1] == pytest.approx(1.8 / 5)
    assert line.smooth[-3][1] == pytest.approx((0.3 + 0.3 + 0.65 + 0.7 + 0.76) / 5)


def test_smoothed_ends_follow_fitted_line() -> None:
    values = [0.0, 0.3, 0.1, 0.4, 0.2, *[0.5] * 4, 1.0]
    smooth = dict(smoothed_line("x", "x", dict(enumerate(values))).smooth)
    # mean 0.2, slope (-2 * 0.0 - 1 * 0.3 + 1 * 0.4 + 2 * 0.2) / 10 = 0.05
    assert (smooth[0], smooth[1]) == pytest.approx((0.2 - 2 * 0.05, 0.2 - 0.05))
    # mean 0.6, slope (-2 * 0.5 - 1 * 0.5 + 1 * 0.5 + 2 * 1.0) / 10 = 0.1
    assert (smooth[8], smooth[9]) == pytest.approx((0.6 + 0.1, 0.6 + 2 * 0.1))


def test_smoothed_straight_line_does_not_lag() -> None:
    line = smoothed_line("x", "x", {10 * n: 3.0 + n for n in range(12)})
    assert [y for _, y in line.smooth] == pytest.approx([y for _, y in line.raw])


def test_smoothed_ends_stay_in_range() -> None:
    smooth = smoothed_line("x", "x", dict(enumerate([0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0]))).smooth
    assert smooth[0][1] == 0.0  # the line is at -0.2
    assert smooth[-1][1] == 1.0


def test_short_curve_shown_as_measured() -> None:
    assert smoothed_line("x", "x", dict.fromkeys(range(9), 0.5)).smooth == []
    assert smoothed_line("x", "x", dict.fromkeys(range(10), 0.5)).smooth != []


def group(iteration: int, num_successes: int, num_valid: int, num_trajectories: int = 4) -> Decision:
    success = num_successes / num_valid if num_valid else 0.0
    return Decision(iteration, "g", 0, 0.0, 0.0, success, num_trajectories, num_valid, is_kept=True, reason="")


def test_training_interval_is_over_groups() -> None:
    apart = [group(0, n, 4) for n in (4, 4, 4, 4, 0, 0, 0, 0)]
    mixed = [group(1, 2, 4) for _ in range(4)] + [group(1, n, 4) for n in (1, 3, 1, 3)]
    series = {"rollout/success_rate": {0: 0.5, 1: 0.5}}
    (panel,) = main_panels(series, decisions=[*apart, *mixed])
    (of_copies, of_many) = panel.lines[0].band
    # members of a group that only repeat each other are worth one trajectory: t of 7 degrees is 2.365, error
    # sqrt(8/7 * 8 * 2^2) / 32, n* = 0.25 / error^2 * (1.96 / 2.365)^2 = 4.81, half of Wilson's = 0.333
    assert of_copies == (0, pytest.approx(0.167, abs=1e-3), pytest.approx(0.833, abs=1e-3))
    assert of_many[2] - of_many[1] < 0.7 * (of_copies[2] - of_copies[1])
    assert panel.note.endswith("with the 95% interval over groups")


def test_invalid_trajectories_enter_no_interval() -> None:
    valid = [group(0, 2, 2), group(0, 0, 4), group(0, 1, 4)]
    assert training_band({0: 0.3}, [*valid, group(0, 0, 0)]) == training_band({0: 0.3}, valid) != []


def test_unreadable_groups_leave_no_interval() -> None:
    assert training_band({0: 0.5}, [group(0, 1, 4)]) == []
    (panel,) = main_panels({"rollout/success_rate": {0: 0.5}}, decisions=[group(0, 1, 4)])
    assert "interval" not in panel.note


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
