"""League: differences at equal trajectories and at equal time, computed by hand."""

import pytest

from starpo.ragen.studies.ablation import AblationResult, RunOutcome, summarise
from starpo.ragen.studies.cells import expand
from starpo.ragen.studies.figures.league import league_table
from starpo.ragen.studies.grid import Grid

PROMPTS = [(seed, "state") for seed in range(40)]
METHODS = {"slow": {"update.ratio": "sequence"}, "fast": {"update.clip_low": 0.1}}


def curve(*shares: float) -> dict[str, dict[int, dict[tuple[int, str], float]]]:
    """Evaluations after 0, 2 and 4 updates, in which these shares of the prompts succeed."""
    return {
        "bandit": {2 * at: {p: float(n < share * 40) for n, p in enumerate(PROMPTS)} for at, share in enumerate(shares)}
    }


@pytest.fixture
def result(base) -> AblationResult:
    grid = Grid(
        name="mine", preset="bandit", cells={"default": {}}, methods=list(METHODS), figure="league", seeds=[0, 1, 2]
    )
    ends = {
        "default": (curve(0.25, 0.25, 0.5), {0: 0.0, 2: 20.0, 4: 40.0}),
        "slow": (curve(0.25, 0.25, 1.0), {0: 0.0, 2: 30.0, 4: 80.0}),  # 40 s: a fifth of the way from 2 updates to 4
        "fast": (curve(0.25, 0.75, 1.0), {0: 0.0, 2: 5.0, 4: 10.0}),
    }
    outcomes = {(cell, s): RunOutcome("run", ran, seconds=spent) for cell, (ran, spent) in ends.items() for s in (0, 1)}
    outcomes |= {(cell, 2): RunOutcome("run", error="it failed") for cell in ends}
    return summarise(grid, expand(grid, base, "mine.toml", METHODS), outcomes)


def test_slow_method_at_equal_time(result: AblationResult) -> None:
    slow, fast = (cell.at_equal_time for cell in result.cells[1:])
    assert (slow.relative_seconds, slow.updates) == (2.0, {0: pytest.approx(2.4), 1: pytest.approx(2.4)})
    assert slow.success == pytest.approx(0.25 + 0.75 / 5)
    assert slow.difference.mean == pytest.approx(0.4 - 0.5)
    assert result.cells[1].panels["bandit"].difference.mean == pytest.approx(0.5)
    assert (fast.relative_seconds, fast.updates, fast.success) == (0.25, {0: 4, 1: 4}, 1.0)
    assert result.cells[0].at_equal_time is None


def test_late_evaluation_excluded_at_equal_time(base) -> None:
    grid = Grid(name="mine", preset="bandit", cells={"default": {}}, methods=["slow"], figure="league", seeds=[0, 1, 2])
    late = {"bandit": {4: curve(0, 0, 1)["bandit"][4]}}
    outcomes = {("default", s): RunOutcome("run", late, seconds={0: 0.0, 4: 40.0}) for s in (0, 1, 2)}
    apart = {"bandit": {0: {PROMPTS[0]: 1.0}, 4: {PROMPTS[1]: 1.0}}}  # nothing to interpolate
    runs = (late, late, apart)
    outcomes |= {("slow", s): RunOutcome("run", ran, seconds={0: 0.0, 4: 80.0}) for s, ran in enumerate(runs)}
    result = summarise(grid, expand(grid, base, "mine.toml", {"slow": METHODS["slow"]}), outcomes)
    assert result.cells[1].at_equal_time is None
    assert league_table(result).title.startswith("none beats")


def test_title_names_better_both_ways(result: AblationResult) -> None:
    table = league_table(result)
    assert table.title == "fast beats default at equal trajectories and at equal time"
    assert [row["cell"] for row in table.rows] == ["slow", "fast", "default"]
    assert table.rows[0]["time"] == "2.00"
    alone = result.model_copy(update={"cells": result.cells[:2]})
    assert league_table(alone).title.startswith("none beats default")
