"""Whether a paper's finding shows: only if the whole interval says so, or every seed that fell without it."""

import pytest

from starpo.ragen.studies.ablation.cells import expand
from starpo.ragen.studies.ablation.finding import fallen, judge_end, judge_fall
from starpo.ragen.studies.ablation.grid import Grid
from starpo.ragen.studies.ablation.result import RunOutcome, summarise
from starpo.ragen.studies.ablation.tables import ablation_tables
from starpo.ragen.studies.result import Difference


@pytest.mark.parametrize(
    ("expected", "low", "high", "said"),
    [
        ("higher", 0.1, 0.3, "shows"),
        ("higher", -0.1, 0.3, "does not show"),
        ("higher", 0.0, 0.3, "does not show"),
        ("higher", -0.3, -0.1, "the opposite shows"),
        ("lower", -0.3, -0.1, "shows"),
        ("lower", 0.1, 0.3, "the opposite shows"),
    ],
)
def test_an_end_differs_if_its_whole_interval_does(expected, low, high, said) -> None:
    found = judge_end(expected, Difference(mean=(low + high) / 2, low=low, high=high))
    assert found.startswith(said + " (")


def test_an_end_that_was_not_measured() -> None:
    assert judge_end("higher", None) == "not measured"


def test_a_fall_is_later_if_it_is_in_every_seed_that_falls_without_it() -> None:
    base = {0: 40, 1: 60, 2: None}
    assert judge_fall({0: None, 1: 61, 2: 5}, base).startswith("shows in 2 of 2 seeds")
    assert judge_fall({0: None, 1: 60, 2: None}, base).startswith("does not show: later in 1 of 2 seeds")
    assert judge_fall({0: None}, {0: None}) == "cannot show: the base falls in no seed"
    assert judge_fall({1: None}, {0: 30}) == "not measured"
    assert fallen(base) == "2 of 3 fell, at 40, 60"


def test_the_table_sets_the_papers_numbers_beside_these(base) -> None:
    finding = {
        "source": "RAGEN, Fig. 9", "claim": "StarPO-S falls later",
        "numbers": {"vanilla": 0.2}, "expected": {"StarPO-S": "later"},
    }  # fmt: skip
    cells = {"vanilla": {}, "StarPO-S": {"online_k": 5}}
    grid = Grid(name="mine", preset="bandit", cells=cells, seeds=[0], finding=finding)
    rates = {"bandit": {0: {(7, "a"): 0.5}, 20: {(7, "a"): 0.25}}}
    falling = {at: 0.8 if at < 10 else 0.1 for at in range(20)}
    outcomes = {
        ("vanilla", 0): RunOutcome("v", rates, falling),
        ("StarPO-S", 0): RunOutcome("s", rates, dict.fromkeys(range(20), 0.8)),
    }
    result = summarise(grid, expand(grid, base, "mine.toml"), outcomes)
    assert [cell.fell for cell in result.cells] == [{0: 10}, {0: None}]
    table = ablation_tables(result)[-1]
    assert table.title == "RAGEN, Fig. 9: StarPO-S falls later"
    assert table.rows[0] == {
        "cell": "vanilla",
        "paper": "0.200",
        "here": "0.250",
        "training": "1 of 1 fell, at 10",
        "shows?": "",
    }
    assert table.rows[1]["paper"] == ""
    assert table.rows[1]["shows?"].startswith("shows in 1 of 1 seeds")
