import pytest

from starpo.ragen.studies.ablation import AblationResult, RunOutcome, summarise
from starpo.ragen.studies.cells import expand
from starpo.ragen.studies.figures.success import draw_ablation
from starpo.ragen.studies.grid import Grid
from starpo.ragen.studies.outcomes import Evaluations
from starpo.ragen.studies.tables import ablation_tables
from tests.ragen.pictures import texts

PROMPTS = [(7, "a"), (8, "b"), (9, "c"), (10, "d")]
BASE, HALF = "keep=1.0", "keep=0.5"


def run(**panels) -> Evaluations:
    """Panel -> iteration -> rate of each prompt; None for a prompt that was not measured."""
    return {
        name: {
            at: {prompt: rate for prompt, rate in zip(PROMPTS, rates, strict=False) if rate is not None}
            for at, rates in iterations.items()
        }
        for name, iterations in panels.items()
    }


def summary(base, outcomes) -> AblationResult:
    """Summarise `outcomes`: (cell, seed) -> evaluations or an error."""
    grid = Grid(name="mine", preset="bandit", axes={"filter.keep": [1.0, 0.5]}, seeds=[0, 1, 2])
    made = {
        (cell, seed): RunOutcome(f"{cell}-{seed}", error=evaluations)
        if isinstance(evaluations, str)
        else RunOutcome("run", evaluations)
        for (cell, seed), evaluations in outcomes.items()
    }
    return summarise(grid, expand(grid, base, "mine.toml"), made)


def both(cell, reference):
    """Outcomes with the same runs for every seed."""
    return {**{(BASE, seed): reference for seed in range(3)}, **{(HALF, seed): cell for seed in range(3)}}


def test_first_last_peak_difference_by_hand(base):
    reference = run(bandit={0: [0, 0, 0, 0], 2: [1, 0, 0, 0], 4: [1, 0, 0, 0]})
    cell = run(bandit={0: [0, 0, 0, 0], 2: [1, 1, 1, 0], 4: [1, 1, 0, 0]})
    ours, theirs = (summary(base, both(cell, reference)).cells[at].panels["bandit"] for at in (1, 0))
    assert (ours.first, ours.last, ours.last_iteration) == (0.0, 0.5, 4)
    assert (ours.peak, ours.peak_iteration) == (0.75, 2)
    assert ours.curve == {0: 0.0, 2: 0.75, 4: 0.5}
    assert ours.difference.mean == pytest.approx(1 / 4)  # only prompt b differs, in every seed
    assert ours.difference.per_seed == {0: 0.25, 1: 0.25, 2: 0.25}
    assert ours.difference.low <= 0.25 <= ours.difference.high
    assert theirs.difference is None
    assert (theirs.last, theirs.peak, theirs.peak_iteration) == (0.25, 0.25, 2)


def test_prompts_matched_by_seed_and_state(base):
    reference = {"bandit": {4: {(7, "a"): 1.0, (8, "b"): 0.0}}}
    cell = {"bandit": {4: {(8, "b"): 1.0, (7, "other"): 0.0, (7, "a"): 1.0}}}
    difference = summary(base, both(cell, reference)).cells[1].panels["bandit"].difference
    assert difference.mean == pytest.approx(0.5)  # a: 1 - 1, b: 1 - 0; the other state has no partner
    assert difference.num_prompts == 2


def test_failed_run_named_and_not_compared(base):
    good = run(bandit={4: [1, 0, 0, 0]})
    outcomes = both(good, run(bandit={4: [0, 0, 0, 0]})) | {(HALF, 1): "NothingKeptError: nothing"}
    result = summary(base, outcomes)
    cell = result.cells[1]
    assert cell.errors == {1: "NothingKeptError: nothing"}
    assert result.failures == {"keep=0.5-1": "NothingKeptError: nothing"}
    assert list(cell.panels["bandit"].difference.per_seed) == [0, 2]
    assert any("keep=0.5" in warning and "lucky" in warning for warning in result.warnings)


def test_runs_compared_at_own_last_evaluation(base):
    cell, reference = run(bandit={0: [0] * 4, 8: [1, 1, 1, 1]}), run(bandit={0: [0] * 4, 4: [0, 1, 1, 1]})
    panel = summary(base, both(cell, reference)).cells[1].panels["bandit"]
    assert panel.difference.mean == pytest.approx(0.25)
    assert panel.last_iteration == 8


def test_prompts_with_only_errors_excluded(base):
    cell, reference = run(bandit={0: [None] * 4, 4: [1, None, 0, 0]}), run(bandit={4: [0, 0, 0, None]})
    panel = summary(base, both(cell, reference)).cells[1].panels["bandit"]
    assert panel.first is None
    assert panel.last == pytest.approx(1 / 3)
    assert (panel.difference.mean, panel.difference.num_prompts) == (pytest.approx(1 / 2), 2)


def test_no_peak_without_a_common_iteration(base):
    outcomes = both(run(bandit={0: [0, 0, 0, 0], 4: [1, 0, 0, 0]}), run(bandit={4: [0, 0, 0, 0]}))
    outcomes |= {(HALF, 0): run(bandit={0: [0, 1, 0, 1]}), (HALF, 1): run(bandit={4: [1, 1, 0, 0]})}
    result = summary(base, outcomes)
    panel = result.cells[1].panels["bandit"]
    assert (panel.peak, panel.peak_iteration, panel.curve) == (None, None, {})
    assert panel.last == pytest.approx(5 / 12)
    assert ablation_tables(result)[0].rows[1]["peak"] == ""
    assert "last 41.7%" in texts(draw_ablation(result))


def test_same_runs_give_the_same_bytes(base):
    outcomes = both(run(bandit={0: [0, 1, 0, 1], 4: [1, 1, 0, 1]}), run(bandit={0: [0, 1, 0, 1], 4: [1, 0, 0, 1]}))
    first, second = summary(base, outcomes), summary(base, dict(reversed(outcomes.items())))
    assert first.model_dump_json() == second.model_dump_json()
    assert AblationResult.model_validate_json(first.model_dump_json()) == first
