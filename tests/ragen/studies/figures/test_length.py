"""Length of the reasoning over the course of training."""

import pytest

from starpo.ragen.studies.figures.trends import LENGTH, draw_length, length_tables
from tests.ragen.pictures import lines, texts

METRIC = "rollout/reasoning_characters_mean"


@pytest.fixture
def result(study):
    """Bandit falls from 40 to 20 in both seeds; BanditRev is constant in one and not measured in the other."""
    falling = {at: 40.0 - at for at in range(21)}
    return study(
        "length",
        {
            "Bandit": {0: {METRIC: falling}, 1: {METRIC: falling}},
            "BanditRev": {0: {METRIC: dict.fromkeys(falling, 30.0)}},
        },
    )


def test_a_line_a_run_and_a_line_a_cell(result) -> None:
    picture = draw_length(result)
    assert len(lines(picture, "run")) == 3
    assert len(lines(picture, "mean")) == 2
    assert {"Bandit", "BanditRev"} <= set(texts(picture))


def test_the_table_has_both_ends_and_the_change_of_every_seed(result) -> None:
    ((_, rows, _),) = length_tables(result)
    assert rows[0] == {"cell": "Bandit", "first tenth": "39.5", "last tenth": "20.5", "change by seed": "-48% -48%"}
    assert rows[1]["change by seed"] == "+0%"
    verdicts = LENGTH.verdicts(result)
    assert verdicts["shorter reasoning in Bandit"].startswith("shows")
    assert verdicts["shorter reasoning in BanditRev"].startswith("does not show")


def test_nothing_measured_is_still_a_picture(study) -> None:
    nothing = study("length", {"a": {}, "b": {}})
    assert "a" in texts(draw_length(nothing))
    assert LENGTH.verdicts(nothing) == dict.fromkeys(
        ("shorter reasoning in a", "shorter reasoning in b"), "not measured"
    )
