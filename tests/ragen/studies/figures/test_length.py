"""Length of the reasoning over the course of training."""

import pytest

from starpo.ragen.studies.figures.trends import LENGTH, length_tables

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


def test_the_table_has_both_ends_and_the_change_of_every_seed(result) -> None:
    ((_, rows, _),) = length_tables(result)
    assert rows[0] == {"cell": "Bandit", "first tenth": "39.5", "last tenth": "20.5", "change by seed": "-48% -48%"}
    assert rows[1]["change by seed"] == "+0%"
    verdicts = LENGTH.verdicts(result)
    assert verdicts["shorter reasoning in Bandit"].startswith("shows")
    assert verdicts["shorter reasoning in BanditRev"].startswith("does not show")
