"""Generalisation matrix: success before and after, and what could not be measured."""

import pytest

from starpo.ragen.studies.generalisation import entries, generalisation_table
from starpo.ragen.studies.leaderboard import Standing, SweepResult
from starpo.ragen.studies.result import Difference
from starpo.ragen.studies.scores import Score
from starpo.ragen.studies.sweep import Sweep
from starpo.ragen.studies.sweep_tables import sweep_tables

TRAINED = {"b": "bandit", "s": "sokoban", "b2": "bandit"}
PANELS = ["bandit", "sokoban"]


def score(success: float, gain: Difference | None = None) -> Score:
    low, high = max(0.0, success - 0.1), min(1.0, success + 0.1)
    return Score(seeds=[0], success=success, low=low, high=high, num_prompts=8, num_episodes=8, gain=gain)


def standing(run: str, iteration: int, scores: dict[str, Score], temperature: float = 0.5) -> Standing:
    return Standing(
        rank=None, run=run, iteration=iteration, temperature=temperature, success=None, low=None, high=None,
        difference=None, scores=scores,
    )  # fmt: skip


@pytest.fixture
def result() -> SweepResult:
    """Each run rises from 0.2 to 0.9 on its own panel; elsewhere b rises, b2 falls, and a cell of s fails."""
    risen = Difference(mean=0.7, low=0.6, high=0.8)
    last = {
        "b": {"bandit": score(0.9, risen), "sokoban": score(0.4, Difference(mean=0.2, low=0.1, high=0.3))},
        "s": {"sokoban": score(0.9, risen)},
        "b2": {"bandit": score(0.9, risen), "sokoban": score(0.0, Difference(mean=-0.2, low=-0.3, high=-0.1))},
    }
    return SweepResult(
        name="g", sweep=Sweep(name="g", is_matrix=True), runs=TRAINED, environments=PANELS, cells={},
        errors={"s@8 bandit T=0.5 seed=0": "boom"},
        leaderboard=[
            standing(run, iteration, last[run] if iteration else dict.fromkeys(PANELS, score(0.2)))
            for run in TRAINED
            for iteration in (8, 0)
        ],
    )  # fmt: skip


def test_only_lowest_temperature_counts(result) -> None:
    cold = [of.model_copy(update={"scores": {}}) if of.run == "s" else of for of in result.leaderboard]
    hot = [of.model_copy(update={"temperature": 1.0}) for of in result.leaderboard]
    assert entries(result.model_copy(update={"leaderboard": [*hot, *cold]}))["s", "bandit"].first is None


def test_table_row_per_run_and_panel(result) -> None:
    rows = generalisation_table(result).rows
    assert len(rows) == 6
    assert rows[1] == {
        "run": "b", "trains on": "bandit", "panel": "sokoban", "first": "0.200 [0.100, 0.300]",
        "last": "0.400 [0.300, 0.500]", "last - first": "+0.200 [+0.100, +0.300]",
    }  # fmt: skip
    assert [row["last"] for row in rows if row["run"] == "s"] == ["not measured", "0.900 [0.800, 1.000]"]
    assert sweep_tables(result)[2].rows == rows
