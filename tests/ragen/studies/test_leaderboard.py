"""Scores and leaderboard, computed by hand."""

import csv
from pathlib import Path

import pytest

from starpo.flows.console.studies import write_result
from starpo.ragen.agents.evaluation.intervals import wilson_interval
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.evaluation import EvaluationConfig
from starpo.ragen.config.rollout import RolloutConfig
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.envs.bandit.environment import BanditSettings
from starpo.ragen.studies.checkpoints import SweepCell
from starpo.ragen.studies.leaderboard import SweepResult, summarise
from starpo.ragen.studies.outcomes import CellOutcome
from starpo.ragen.studies.scores import Score
from starpo.ragen.studies.sweep import Sweep
from starpo.ragen.studies.sweep_tables import sweep_method, sweep_tables

PROMPTS = [(number, f"d{number}") for number in range(10)]


def cell(
    run: str, iteration: int = 1, environment: str = "bandit", temperature: float = 0.5, seed: int = 0
) -> SweepCell:
    evaluation = EvaluationConfig(temperature=temperature, num_prompts=10)
    return SweepCell(
        run,
        "bandit",
        iteration,
        f"{iteration:032x}",
        environment,
        BanditSettings(),
        AgentConfig(),
        RolloutConfig(),
        evaluation,
        seed,
    )


def outcome(num_successes: int, num_errors: int = 0) -> CellOutcome:
    counts = {p: (int(at < num_successes), 1) for at, p in enumerate(PROMPTS[: 10 - num_errors])}
    return CellOutcome({"success": num_successes / max(1, len(counts)), "num_errors": float(num_errors)}, counts)


def summed(
    cells: list[SweepCell],
    outcomes: list[CellOutcome | None],
    errors: dict[str, str] | None = None,
    is_matrix: bool = False,
) -> SweepResult:
    by_label = {c.label: o for c, o in zip(cells, outcomes, strict=True) if o is not None}
    sweep = Sweep(name="s", seeds=sorted({c.seed for c in cells}), is_matrix=is_matrix)
    return summarise(sweep, cells, [f"{n:032x}" for n in range(len(cells))], by_label, errors or {}, {})


def only(result: SweepResult) -> Score:
    """The score of a sweep of one checkpoint on one panel."""
    (standing,) = result.leaderboard
    return standing.scores["bandit"]


def test_seeds_are_pooled_prompt_by_prompt() -> None:
    """8 of 10 and 4 of 10 give 12 of 20 episodes, on 10 prompts."""
    score = only(summed([cell("a", seed=0), cell("a", seed=1)], [outcome(8), outcome(4)]))
    assert (score.success, score.num_prompts, score.num_episodes, score.seeds) == (0.6, 10, 20, [0, 1])
    assert 0 <= score.low < 0.6 < score.high <= 1


def test_one_seed_has_wilsons_interval() -> None:
    score = only(summed([cell("a")], [outcome(7)]))
    assert (score.low, score.high) == pytest.approx(wilson_interval(7, 10))


def test_best_first_others_compared() -> None:
    result = summed([cell("a"), cell("b"), cell("c")], [outcome(3), outcome(9), outcome(9)])
    assert [(s.rank, s.run, s.success) for s in result.leaderboard] == [(1, "b", 0.9), (1, "c", 0.9), (3, "a", 0.3)]
    first, equal, last = (standing.difference for standing in result.leaderboard)
    assert first is None
    assert equal is not None
    assert last is not None
    assert equal.mean == 0.0
    assert last.mean == pytest.approx(-0.6)  # six prompts of ten
    assert last.low < -0.6 < last.high < 0
    assert (last.num_pairs, last.num_up, last.num_down) == (10, 0, 6)
    # 6 of one sign: 2 / 2^6; three pairs; sd sqrt(0.24 * 10/9): 10 (2.8016 * 0.1633 / 0.6)^2 = 5.8
    assert (last.p_value, last.adjusted_p_value, last.num_needed) == (0.03125, 0.09375, 6)
    apart = [result.leaderboard[0], *(s.model_copy(update={"difference": None}) for s in result.leaderboard[1:])]
    for standings, second in ((result.leaderboard, str(equal)), (apart, "no prompt in common")):
        rows = sweep_tables(result.model_copy(update={"leaderboard": standings}))[0].rows
        assert [row["to the first"] for row in rows[:2]] == ["first", second]


def test_pairs_by_hand() -> None:
    """9, 6 and 2 successes of ten prompts: 3, 7 and 4 differ, all one way: p = 2 / 2^3, 2 / 2^7 and 2 / 2^4."""
    result = summed([cell("a"), cell("b"), cell("c")], [outcome(2), outcome(9), outcome(6)])
    assert [(pair.run, pair.to_run) for pair in result.pairs] == [("c", "b"), ("a", "b"), ("a", "c")]
    differences = [pair.difference for pair in result.pairs]
    assert [of.mean for of in differences] == pytest.approx([-0.3, -0.7, -0.4])
    assert [of.num_up + of.num_down for of in differences] == [3, 7, 4]
    assert [of.p_value for of in differences] == [0.25, 0.015625, 0.125]
    assert [of.adjusted_p_value for of in differences] == [0.25, 0.046875, 0.25]  # times 1, 3, 2
    assert differences[:2] == [standing.difference for standing in result.leaderboard[1:]]
    assert [pair.panels["bandit"].difference for pair in result.pairs] == differences


def test_pairs_without_first_shown() -> None:
    def titles(number: int) -> list[str]:
        result = summed([cell(f"r{n}") for n in range(number)], [outcome(n) for n in range(number)])
        return [table.title for table in sweep_tables(result)] + [sweep_method(result)]

    result = summed([cell("a"), cell("b"), cell("c")], [outcome(2), outcome(9), outcome(6)])
    (row,) = sweep_tables(result)[1].rows
    assert (row["line"], row["other"], row["p"], row["up"], row["down"]) == ("a@1", "c@1", "0.25", "0", "4")
    assert not any("other pairs" in title for title in titles(2))
    assert any("other pairs" in title for title in titles(6))
    assert not any("other pairs" in title for title in titles(7))
    assert titles(7)[-1].endswith("All 21 pairs: result.json, or -o FILE.csv.")


def test_pairs_are_written(tmp_path: Path) -> None:
    names = ("bandit", "sokoban")
    cells = [cell(run, environment=name) for run in ("a", "b", "c") for name in names]
    result = summed(cells, [played(number) for number in (3, 4, 5, 6, 7, 9)])
    _, pairs = write_result(result, tmp_path / "result.csv")
    assert pairs == tmp_path / "result-pairs.csv"
    rows = list(csv.DictReader(pairs.open()))
    assert [(row["run"], row["to_run"], row["panel"]) for row in rows[:3]] == [
        ("b", "c", ""), ("b", "c", "bandit"), ("b", "c", "sokoban")
    ]  # fmt: skip
    assert len(rows) == 9
    assert [float(row["difference"]) for row in rows[:3]] == pytest.approx([-0.25, -0.2, -0.3])
    assert [row["return_difference"] for row in rows[:3]] == ["", "-2.0", "-3.0"]


def test_environments_count_the_same() -> None:
    cells = [cell("a", environment=name) for name in ("bandit", "sokoban")]
    (standing,) = summed(cells, [outcome(10), outcome(4)]).leaderboard
    assert standing.success == pytest.approx(0.7)
    assert {panel: score.success for panel, score in standing.scores.items()} == {"bandit": 1.0, "sokoban": 0.4}
    assert standing.low < 0.7 < standing.high


def test_environments_count_equally_in_differences() -> None:
    """On panels of 10 and 2 prompts, 9/10 and 0/2 give 0.45, 4/10 and 2/2 give 0.7; not 9/12 and 6/12."""
    cells = [cell(run, environment=name) for run in ("a", "b") for name in ("bandit", "sokoban")]
    result = summed(cells, [outcome(9), outcome(0, num_errors=8), outcome(4), outcome(2, num_errors=8)])
    first, second = result.leaderboard
    assert (first.run, first.success, second.success) == ("b", pytest.approx(0.7), pytest.approx(0.45))
    assert second.difference is not None
    assert second.difference.mean == pytest.approx(-0.25)
    assert -1 <= second.difference.low < -0.25 < second.difference.high


def test_training_judged_first_to_last() -> None:
    cells = [*(cell("a", iteration) for iteration in (4, 0, 8)), cell("b", 0)]
    outcomes = [outcome(9), outcome(2), outcome(6), outcome(5)]
    gains = {
        (of.run, of.iteration): of.scores["bandit"].gain for of in summed(cells, outcomes, is_matrix=True).leaderboard
    }
    assert [place for place, gain in gains.items() if gain] == [("a", 8)]  # b has one checkpoint
    assert gains["a", 8].mean == pytest.approx(0.4)
    assert not any(of.scores["bandit"].gain for of in summed(cells, outcomes).leaderboard)


def test_checkpoint_with_failed_cell_unranked() -> None:
    cells = [
        cell("a"),
        cell("b", environment="bandit"),
        cell("a", environment="sokoban"),
        cell("b", environment="sokoban"),
    ]
    result = summed(cells, [outcome(9), outcome(5), None, outcome(5)], {cells[2].label: "EngineError: lost"})
    assert [(s.rank, s.run) for s in result.leaderboard] == [(1, "b"), (None, "a")]
    assert {panel: score.success for panel, score in result.leaderboard[1].scores.items()} == {"bandit": 0.9}
    assert result.failures == {"a@1 sokoban T=0.5 seed=0": "EngineError: lost"}


def test_only_errors_measure_nothing() -> None:
    result = summed([cell("a")], [outcome(0, num_errors=10)])
    assert result.leaderboard[0].scores == {}
    assert result.leaderboard[0].rank is None
    assert any("10 episodes ended in an environment error" in warning for warning in result.warnings)


def test_result_survives_json_unchanged() -> None:
    result = summed([cell("a"), cell("b")], [outcome(3), outcome(9)])
    assert SweepResult.model_validate_json(result.model_dump_json()) == result
    assert summed([cell("a"), cell("b")], [outcome(3), outcome(9)]).model_dump_json() == result.model_dump_json()


def partly_seen(num_successes: int, num_seen: int, seen_successes: int) -> CellOutcome:
    """Outcome whose last `num_seen` prompts are states of training; the first prompts of each part succeed."""
    cut = len(PROMPTS) - num_seen
    counts = {p: (int(at < num_successes), 1) for at, p in enumerate(PROMPTS[:cut])}
    seen_counts = {p: (int(at < seen_successes), 1) for at, p in enumerate(PROMPTS[cut:])}
    return CellOutcome({"success": num_successes / cut}, counts, seen_counts)


def test_prompts_of_one_training_excluded_everywhere() -> None:
    """Training of a met the last two of ten prompts, that of b none: both are scored on the other eight: 6/8, 4/8."""
    result = summed([cell("a"), cell("b")], [partly_seen(6, 2, 2), outcome(4)])
    scores = {of.run: of.scores["bandit"] for of in result.leaderboard}
    assert {run: (s.success, s.num_prompts, s.num_seen_prompts, s.seen_success) for run, s in scores.items()} == {
        "a": (0.75, 8, 2, 1.0),
        "b": (0.5, 8, 2, None),
    }
    assert result.leaderboard[1].difference is not None
    assert result.leaderboard[1].difference.mean == pytest.approx(-0.25)
    (warning,) = (warning for warning in result.warnings if "training" in warning)
    assert "2 of 10 prompts" in warning
    assert "started 1.000, on the prompts that count 0.750" in warning


def played(num_successes: int, cost: float | None = None) -> CellOutcome:
    """Outcome of ten episodes that return 10 for success and 1 less for every prompt, in which one more was lost."""
    plain = outcome(num_successes)
    totals = {
        "num_errors": 1, "num_episodes": 10, "num_truncated": 2, "num_turns": 40, "num_format_errors": 4,
        "num_response_tokens": 900, "seconds": 1.5, **({} if cost is None else {"cost": cost}),
    }  # fmt: skip
    returns = {prompt: (10.0 * total - at, 1) for at, (prompt, (total, _)) in enumerate(plain.counts.items())}
    return CellOutcome(plain.headline, plain.counts, returns=returns, totals=totals)


def test_returns_and_totals_by_hand() -> None:
    """3 and 5 successes of 10 in two seeds: mean return 40 / 10 - 4.5; costs are known of one seed only."""
    cells = [cell("a", seed=0), cell("a", seed=1), cell("b", seed=0), cell("b", seed=1)]
    result = summed(cells, [played(3, 0.5), played(5), played(9, 0.5), played(9, 0.25)])
    best, worse = (standing.scores["bandit"] for standing in result.leaderboard)
    assert (worse.mean_return, best.mean_return) == pytest.approx((-0.5, 4.5))
    assert worse.return_low < -0.5 < worse.return_high
    assert worse.return_difference.mean == pytest.approx(-5.0)
    assert (worse.return_difference.num_down, worse.return_difference.num_up) == (6, 0)
    assert (worse.malformed, worse.truncated, worse.tokens_per_episode) == (0.1, 0.2, 90)
    assert (worse.num_errors, worse.seconds, worse.cost, best.cost) == (2, 3.0, None, 0.75)


def test_cost_without_prices_is_empty() -> None:
    panels = sweep_tables(summed([cell("a"), cell("b")], [played(9, 0.0), played(3, 0.5)]))[1].rows
    assert [row["cost"] for row in panels] == ["", "0.5"]


def test_result_written_by_suffix(tmp_path: Path) -> None:
    result = summed([cell("a_1"), cell("b")], [played(3), played(9)])
    for suffix, start in {"csv": b"rank,run", "tex": b"% needs", "svg": b"<svg", "pdf": b"%PDF"}.items():
        assert write_result(result, tmp_path / f"result.{suffix}")[0].read_bytes().startswith(start)
    first, second = csv.DictReader((tmp_path / "result.csv").open())
    assert (first["run"], first["difference"], second["return_difference"]) == ("b", "", "-6.0")
    assert r"a\_1" in (tmp_path / "result.tex").read_text()
    assert "a_1@1" in (tmp_path / "result.svg").read_text()
    assert (tmp_path / "result.svg").read_text().count('id="interval') == 3  # two scores, one difference
    with pytest.raises(ConfigError, match="no cell of the sweep s was measured"):
        write_result(summed([cell("a")], [None]), tmp_path / "none.csv")
