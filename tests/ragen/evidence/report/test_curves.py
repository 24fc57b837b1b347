from datetime import UTC, datetime

import pytest

from starpo.flows.presets import preset
from starpo.ragen.evidence.report.curves import main_panels, other_panels, smoothed_line
from starpo.ragen.evidence.report.words import strange_panels
from starpo.ragen.store.records.run import Run


def test_evaluation_has_its_interval_and_is_not_smoothed() -> None:
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


def test_a_curve_is_smoothed_by_the_bias_corrected_average() -> None:
    # decay 0.9: first 1; then (0.9 * 0.1 * 1 + 0.1 * 2) / (1 - 0.81) = 0.29 / 0.19
    line = smoothed_line("x", {3 + n: float(1 + (n > 0)) for n in range(10)})
    assert line.smooth[:2] == [(3, 1.0), (4, pytest.approx(0.29 / 0.19))]
    assert [x for x, _ in line.smooth] == [x for x, _ in line.raw]


def test_gradient_norms_above_zero_are_logarithmic() -> None:
    assert main_panels({"update/gradient_norm": {0: 1.0, 1: 9.0}})[0].is_log
    assert not main_panels({"update/gradient_norm": {0: 0.0, 1: 9.0}})[0].is_log


def test_panel_in_unknown_symbols_expects_0_percent():
    config = preset("sokoban").model_dump(mode="json")
    run = Run(name="a", flow="starpo", preset="sokoban", created=datetime(2026, 1, 1, tzinfo=UTC), config=config)
    remark = strange_panels(run)
    assert remark == "SokobanNewVocab: drawn in symbols not trained on, so low success, even 0%, is expected"
    (panel,) = main_panels({"evaluation/sokoban/success": {0: 0.5}}, remark)
    assert panel.note == f"share of the fixed panel, with the 95% interval; {remark}"
    assert strange_panels(run.model_copy(update={"config": config | {"policy": {"type": "pretrained"}}})) == ""
