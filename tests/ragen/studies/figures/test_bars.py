"""Bar chart: the paper's number beside ours, which has an interval."""

import pytest

from starpo.ragen.studies.figures.bars import draw_bars
from tests.ragen.pictures import lines, texts


def test_a_pair_of_bars_a_cell_and_an_interval(study) -> None:
    picture = draw_bars(study("bars", {"think": {}, "no-think": {}}, numbers={"think": 1.0, "no-think": 0.813}))
    said = texts(picture)
    assert said.count("50.0") == 2
    assert {"100.0", "81.3", "think", "no-think"} <= set(said)
    assert len(lines(picture, "interval")) == 2


def test_cells_stand_as_the_paper_has_them(study) -> None:
    numbers = {"2 actions": 0.2, "5 actions": 0.5}
    said = texts(draw_bars(study("bars", {"5 actions": {}, "own": {}, "2 actions": {}}, numbers=numbers)))
    assert [text for text in said if text in ("2 actions", "5 actions", "own")] == ["2 actions", "5 actions", "own"]


def test_without_the_papers_numbers_only_ours_are_drawn(study) -> None:
    picture = draw_bars(study("bars", {"think": {}, "no-think": {}}))
    assert texts(picture).count("50.0") == 2
    assert not any("grey" in text for text in texts(picture))


def test_what_was_not_measured_is_said(study) -> None:
    result = study("bars", {"think": {}, "no-think": {}})
    cells = [result.cells[0], result.cells[1].model_copy(update={"panels": {}})]
    picture = draw_bars(result.model_copy(update={"cells": cells}))
    assert any("measured" in text for text in texts(picture))
    assert len(lines(picture, "interval")) == 1


@pytest.mark.parametrize("label", ["<script>", "$x$", "a&b"])
def test_labels_stay_text(study, label) -> None:
    assert label in texts(draw_bars(study("bars", {label: {}, "b": {}})))
