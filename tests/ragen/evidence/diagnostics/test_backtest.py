import numpy as np
import pytest

from starpo.ragen.evidence.diagnostics.backtest import EVALUATED, Outcome, Score, backtest, fall
from starpo.ragen.evidence.diagnostics.backtest_chart import draw_leads
from starpo.ragen.evidence.diagnostics.collapse import GRADIENT, REWARD_STD, SUCCESS


def _series(values) -> dict[int, float]:
    return {iteration: float(value) for iteration, value in enumerate(values)}


def _score(scores, name):
    return next(score for score in scores if score.rule.name == name)


@pytest.mark.parametrize(
    ("values", "at"),  # centred means of five, shorter at the ends
    [
        ([0.8] * 30 + [0.2] * 20, 31),  # 0.44 at 30, 0.32 at 31
        ([0.8] * 5 + [0.0] * 5, 5),  # the fewest points that are enough
        ([0.8] * 5 + [0.7] * 5 + [0.0] * 5, 10),  # 0.42 at 9, 0.28 at 10
        ([1.0] + [0.6] * 4 + [0.33] * 8, 7),  # the peak is the first mean, of three points: 0.73
    ],
)
def test_a_fall_is_where_success_stays_below_half_of_its_peak(values, at):
    assert fall(_series(values)) == at


@pytest.mark.parametrize(
    "values",
    [
        [0.8] * 30 + [0.2] * 10 + [0.8] * 10,  # it recovers
        [1.0] * 30 + [0.5] * 20,  # falls to exactly half
        [0.8] * 46 + [0.2] * 3,  # too few points after the fall
        [0.8] * 4 + [0.0] * 5,  # too few points
        np.linspace(0.1, 0.9, 50),
    ],
)
def test_no_fall(values):
    assert fall(_series(values)) is None


def test_a_fall_counts_from_the_last_time_above_half():
    values = [0.8] * 20 + [0.1] * 10 + [0.8] * 10 + [0.1] * 20
    assert 40 <= fall(_series(values)) <= 42


def test_leads_misses_and_alarms_in_vain_are_counted_for_every_rule():
    success = _series([0.8] * 60 + [0.0] * 30)
    spike = _series([1.0] * 90)
    spike[40] = 50.0
    scores = backtest(
        {
            "told": {SUCCESS: success, GRADIENT: spike},
            "silent": {SUCCESS: success, GRADIENT: _series([1.0] * 90)},
            "sound": {SUCCESS: _series([0.8] * 90), GRADIENT: spike},
        }
    )
    rule = _score(scores, f"{GRADIENT} warning")
    fell = fall(success)
    assert [(o.run, o.fell, o.rang) for o in rule.outcomes] == [
        ("told", fell, 40), ("silent", fell, None), ("sound", None, 40),
    ]  # fmt: skip
    assert rule.leads == [fell - 40]
    assert (rule.num_fallen, rule.num_early, rule.num_missed, rule.num_false) == (2, 1, 1, 1)
    assert rule.median_lead == fell - 40
    assert Score(rule.rule, (Outcome("a", fell=5, rang=4), Outcome("b", fell=5, rang=5))).num_early == 1
    late = _score(scores, f"{SUCCESS} collapse")
    assert late.num_missed == 0
    assert all(lead <= 0 for lead in late.leads)
    assert _score(scores, "RAGEN-2 std").median_lead is None


def test_ragen_2s_stop_rules():
    std = [1.0] * 10 + [0.2] * 10 + [0.09] * 9 + [0.2] + [0.09] * 15  # nine in a row are not enough
    evaluated = {10 * n: value for n, value in enumerate([0.5, 0.01, 0.0, 0.0, 0.0, 0.0, 0.009])}
    scores = backtest({"run": {SUCCESS: _series([0.5] * 45), REWARD_STD: _series(std), EVALUATED: evaluated}})
    assert _score(scores, "RAGEN-2 std").outcomes[0].rang == 39
    assert _score(scores, "RAGEN-2 success").outcomes[0].rang == 60


def test_rules_know_no_later_iteration():
    success = [0.8] * 40 + [0.0] * 20
    series = {SUCCESS: _series(success), REWARD_STD: _series([1.0] * 30 + [0.01] * 30)}
    rang = {score.rule: score.outcomes[0].rang for score in backtest({"run": series})}
    assert sum(iteration is not None for iteration in rang.values()) == 6  # the rules that watch these two metrics
    for now in range(60):
        known = {name: {i: v for i, v in values.items() if i <= now} for name, values in series.items()}
        for rule, iteration in rang.items():
            assert rule.ring(known) == (None if iteration is None or iteration > now else iteration)


def test_the_best_rule_is_first_and_the_drawing_names_all():
    series = {SUCCESS: _series([0.8] * 40 + [0.0] * 20), REWARD_STD: _series([1.0] * 20 + [0.01] * 40)}
    scores = backtest({"run": series})
    assert [score.rule.name for score in scores[:2]] == ["RAGEN-2 std", f"{REWARD_STD} warning"]  # by their leads
    assert [score.num_early for score in scores] == sorted((score.num_early for score in scores), reverse=True)
    drawn = draw_leads(scores)
    assert all(f">{score.rule.name}<" in drawn for score in scores)
    assert ">0 false, 0 missed<" in drawn
