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


@pytest.mark.parametrize("label", ["<script>", "$x$", "a&b"])
def test_labels_stay_text(study, label) -> None:
    assert label in texts(draw_bars(study("bars", {label: {}, "b": {}})))
