"""A paper's finding shows only if the whole interval agrees or, for falls, every seed in which the base falls."""

import pytest

from starpo.ragen.core.errors import ConfigError
from starpo.ragen.studies.ablation import RunOutcome, summarise
from starpo.ragen.studies.cells import expand
from starpo.ragen.studies.finding import fallen, judge_alike, judge_end, judge_fall, judge_order, sentence
from starpo.ragen.studies.grid import Grid
from starpo.ragen.studies.ranks import RankCorrelation
from starpo.ragen.studies.result import Difference
from starpo.ragen.studies.tables import ablation_conclusion, ablation_tables


@pytest.mark.parametrize(
    ("expected", "low", "high", "expected_verdict"),
    [
        ("higher", 0.1, 0.3, "shows"),
        ("higher", -0.1, 0.3, "does not show"),
        ("higher", 0.0, 0.3, "does not show"),
        ("higher", -0.3, -0.1, "the opposite shows"),
        ("lower", -0.3, -0.1, "shows"),
        ("lower", 0.1, 0.3, "the opposite shows"),
    ],
)
def test_end_differs_by_whole_interval(expected, low, high, expected_verdict) -> None:
    verdict = judge_end(expected, Difference(mean=(low + high) / 2, low=low, high=high))
    assert verdict.startswith(expected_verdict + " (")


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (-0.04, 0.03, "shows"),
        (-0.06, 0.03, "does not show"),
        (0.02, 0.09, "does not show"),
        (0.06, 0.09, "the opposite shows"),
        (-0.2, -0.06, "the opposite shows"),
    ],
)
def test_cells_are_alike_within_the_margin(low, high, verdict) -> None:
    assert judge_alike(Difference(mean=(low + high) / 2, low=low, high=high), 0.05).startswith(verdict + " (")


def test_unmeasured_has_no_verdict() -> None:
    assert judge_alike(None, 0.05) == judge_order(None) == "not measured"


def test_verdict_states_scope() -> None:
    verdicts = {
        "KL": "the opposite shows (+0.9)", "fresh": "shows in 3 of 3 seeds (x)", "critic": "does not show: later in 1",
        "filter": "shows (y)", "lost": "not measured",
    }  # fmt: skip
    assert sentence(verdicts) == (
        "At this scale the finding shows for fresh, filter; the finding does not show for critic; the opposite shows "
        "for KL; nothing is measured for lost."
    )
    assert sentence({}) == ""


def test_cell_order_judged_from_prompts(base) -> None:
    """Three cells succeed on 10, 20 and 30 of 40 prompts, in three seeds."""
    finding = {"source": "RAGEN, Table 3", "claim": "more is better", "order": ["one", "two", "three"]}
    cells = {"two": {}, "one": {"online_k": 2}, "three": {"online_k": 3}}
    grid = Grid(name="mine", preset="bandit", cells=cells, seeds=[0, 1, 2], finding=finding)
    successes = {"one": 10, "two": 20, "three": 30}
    outcomes = {
        (label, seed): RunOutcome(label, {"bandit": {4: {(p, "x"): float(p < number) for p in range(40)}}})
        for label, number in successes.items()
        for seed in range(3)
    }
    result = summarise(grid, expand(grid, base, "mine.toml"), outcomes)
    assert result.order is not None
    assert result.order.rho == pytest.approx(1.0)
    assert ablation_conclusion(result) == "At this scale the finding shows for the order of the cells."
    assert ablation_tables(result)[-1].rows[0]["shows?"].startswith("shows (rank correlation +1.00 [")
    missing = {**outcomes, ("one", 0): RunOutcome("one", error="boom")}
    assert summarise(grid, expand(grid, base, "mine.toml"), missing).order is not None  # over the common seeds
    none = {**outcomes, **{("one", seed): RunOutcome("one", error="boom") for seed in range(3)}}
    assert summarise(grid, expand(grid, base, "mine.toml"), none).order is None


@pytest.mark.parametrize(
    ("order", "message"),
    [
        (["a", "b"], "expected at least three different cells"),
        (["a", "b", "a"], "expected at least three different cells"),
        (["a", "b", "d"], "finding.order: there is no cell 'd'"),
    ],
)
def test_an_order_names_cells(base, order, message) -> None:
    finding = {"source": "s", "claim": "c", "order": order}
    cells = {"a": {}, "b": {"online_k": 2}, "c": {"online_k": 3}}
    grid = Grid(name="mine", preset="bandit", cells=cells, seeds=[0, 1, 2], finding=finding)
    with pytest.raises(ConfigError, match=message):
        expand(grid, base, "mine.toml")


def test_later_fall_needs_every_seed() -> None:
    base = {0: 40, 1: 60, 2: None}
    assert judge_fall({0: None, 1: 61, 2: 5}, base).startswith("shows in 2 of 2 seeds")
    assert judge_fall({0: None, 1: 60, 2: None}, base).startswith("does not show: later in 1 of 2 seeds")
    assert judge_fall({0: None}, {0: None}) == "cannot show: the base falls in no seed"
    assert judge_fall({1: None}, {0: 30}) == "not measured"
    assert judge_fall({0: None}, base) == "not measured"  # seed 1 was not measured
    assert fallen(base) == "2 of 3 fell, at 40, 60"


def test_early_end_is_not_never_falling(base) -> None:
    grid = Grid(name="mine", preset="bandit", cells={"a": {}, "b": {"online_k": 2}}, seeds=[0, 1, 2])
    steady, falling = dict.fromkeys(range(20), 0.8), {at: 0.8 if at < 10 else 0.1 for at in range(20)}
    runs = [
        RunOutcome("r", training=steady, error="out of memory"),
        RunOutcome("r", training=falling, error="nothing left to keep"),
        RunOutcome("r", {"bandit": {0: {(7, "a"): 0.5}}}, dict.fromkeys(range(6), 0.8)),
    ]
    outcomes = {(cell, seed): run for cell in ("a", "b") for seed, run in enumerate(runs)}
    result = summarise(grid, expand(grid, base, "mine.toml"), outcomes)
    assert result.cells[1].fell == {1: 10}


def test_table_shows_papers_numbers_beside(base) -> None:
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
        "here": "0.250 [0.052, 0.845]",  # 0.25 (1 - h) and that + h, h = z^2 / (1 + z^2), the bound for one prompt
        "training": "1 of 1 fell, at 10",
        "shows?": "",
    }
    assert table.rows[1]["paper"] == ""
    assert table.rows[1]["shows?"].startswith("shows in 1 of 1 seeds")
    assert ablation_conclusion(result) == "At this scale the finding shows for StarPO-S."


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(0.1, 0.9, "shows"), (-0.1, 0.9, "does not show"), (-0.9, -0.1, "the opposite shows")],
)
def test_order_needs_whole_interval(low, high, verdict) -> None:
    assert judge_order(RankCorrelation(rho=0.5, low=low, high=high, num=4)).startswith(verdict + " (")
