import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from starpo.ragen.learning.control.collapse import (
    DISTINCT,
    DRIFT,
    ENTROPY,
    FORMAT,
    GRADIENT,
    RETURN,
    REWARD_STD,
    SUCCESS,
    diagnose,
)
from starpo.ragen.learning.control.thresholds import CollapseThresholds

FALLING = {REWARD_STD, RETURN, SUCCESS, FORMAT, ENTROPY, DISTINCT}


def _series(values) -> dict[int, float]:
    return {iteration: float(value) for iteration, value in enumerate(values)}


def _names(verdict) -> set[tuple[str, str]]:
    return {(signal.name, signal.severity) for signal in verdict.signals}


def _healthy(seed: int, num_points: int = 100) -> dict[str, dict[int, float]]:
    """Series of a Sokoban run that learns: success 0.2 -> 0.6 with the noise of 8 groups, everything else steady."""
    random = np.random.default_rng(seed)
    progress = 1 - np.exp(-np.arange(num_points) / 25)
    success = np.clip(0.2 + 0.4 * progress + random.normal(0, 0.06, num_points), 0, 1)
    return {
        SUCCESS: _series(success),
        RETURN: _series(-1 + 11 * success),
        REWARD_STD: _series(2.9 - 0.5 * progress + random.normal(0, 0.3, num_points)),
        ENTROPY: _series(0.9 - 0.4 * progress + random.normal(0, 0.03, num_points)),
        FORMAT: _series(np.clip(0.97 + random.normal(0, 0.01, num_points), 0, 1)),
        DISTINCT: _series(0.8 - 0.2 * progress + random.normal(0, 0.02, num_points)),
        GRADIENT: _series(0.5 * np.exp(random.normal(0, 0.3, num_points))),
    }


def _collapsing(seed: int) -> dict[str, dict[int, float]]:
    """Series as in the paper's Figure 6: reward std falls from 40, the gradient spikes at 85, success falls from 90."""
    series, steps = _healthy(seed, 130), np.arange(130)
    alike = np.clip((steps - 40) / 30, 0, 0.9)
    lost = np.clip((steps - 90) / 15, 0, 1)
    for name, factor in {REWARD_STD: 1 - alike, SUCCESS: 1 - lost, FORMAT: 1 - lost, DISTINCT: 1 - alike}.items():
        series[name] = _series(np.array(list(series[name].values())) * factor)
    series[RETURN] = _series(-1 + 11 * np.array(list(series[SUCCESS].values())))
    series[GRADIENT][85] = 89.0
    return series


@pytest.mark.parametrize("seed", range(10))
def test_a_healthy_run_raises_nothing(seed):
    assert diagnose(_healthy(seed)).signals == ()


def test_solved_run_without_variance_is_healthy():
    """Bandit from 0.25 to 0.999: the in-group std falls to a fourteenth because everyone succeeds."""
    success = np.concatenate([np.full(5, 0.25), np.linspace(0.25, 0.999, 20), np.full(40, 0.999)])
    verdict = diagnose({SUCCESS: _series(success), REWARD_STD: _series(np.sqrt(success * (1 - success)))})
    assert verdict.status == "healthy"
    # The paper warns of a fall that success does not explain.
    unexplained = diagnose({SUCCESS: _series([0.25] * 65), REWARD_STD: _series(0.43 * (1 - success))})
    assert _names(unexplained) == {(REWARD_STD, "warning")}


@pytest.mark.parametrize(
    ("rate", "share"),
    [
        (0.98, 0.35),  # sqrt(0.98 * 0.02 / 0.16), with 0.16 = 0.2 * 0.8 the early variance
        (0.5, 1.0),  # a variance of 0.25 explains no fall
        (0.02, 1.0),  # nor does a success rate that falls
    ],
)
def test_success_explains_falling_std(rate, share):
    limits = CollapseThresholds(baseline_points=1, decay=0.0, patience=1, std_warning=0.5)
    success = _series([0.2, rate])
    for std, num in ((2 * share + 0.01, 0), (2 * share - 0.01, 1)):  # early std 4, so half of it is 2
        signals = diagnose({SUCCESS: success, REWARD_STD: _series([4, std])}, limits).signals
        assert [signal.name for signal in signals].count(REWARD_STD) == num


@pytest.mark.parametrize("seed", range(5))
def test_collapse_signals_in_paper_order(seed):
    verdict = diagnose(_collapsing(seed))
    assert verdict.status == "collapsed"
    first = {}
    for signal in verdict.signals:
        first.setdefault((signal.name, signal.severity), signal.iteration)
    assert 40 < first[REWARD_STD, "warning"] < 75
    assert first[GRADIENT, "warning"] == 85
    assert first[REWARD_STD, "warning"] < first[GRADIENT, "warning"] < first[SUCCESS, "warning"]
    assert first[SUCCESS, "warning"] < first[SUCCESS, "collapse"]
    assert {(FORMAT, "collapse"), (RETURN, "collapse"), (DISTINCT, "warning")} <= set(first)
    assert verdict.words.startswith("collapsed: since iteration ")


def test_two_warnings_are_a_collapse():
    limits = CollapseThresholds(baseline_points=2, decay=0.0, patience=1)
    series = {
        REWARD_STD: _series([4, 4, 4, 0.5, 0.5, 0.5, 0.5]),
        DISTINCT: _series([1.0, 1.0, 1.0, 1.0, 0.1, 0.1, 1.0]),
        SUCCESS: _series([0.6, 0.6, 0.6, 0.6, 0.6, 0.1, 0.6]),
    }
    known = [{name: {i: v for i, v in of.items() if i <= n} for name, of in series.items()} for n in range(3, 7)]
    assert [diagnose(of, limits).status for of in known] == ["warning", "collapsing", "collapsed", "warning"]


def test_signal_names_compared_values():
    # No smoothing: early std (4 + 4) / 2 = 4, bound 0.5 * 4 = 2; 1 is below it at iterations 2 and 3: raised at 3.
    limits = CollapseThresholds(baseline_points=2, decay=0.0, patience=2, std_warning=0.5)
    verdict = diagnose({REWARD_STD: _series([4, 4, 1, 1, 3])}, limits)
    (signal,) = verdict.signals
    assert (signal.iteration, signal.ended) == (3, 4)
    assert (signal.name, signal.severity) == (REWARD_STD, "warning")
    assert (signal.value, signal.baseline) == (1.0, 4.0)
    assert "in-group reward std 1 has fallen from 4" in signal.words
    assert verdict.status == "healthy"  # it has recovered
    assert verdict.words == "healthy: no signal holds (1 in the past)"


def test_patience_needs_points_in_a_row():
    limits = CollapseThresholds(baseline_points=2, decay=0.0, patience=2)
    assert diagnose({REWARD_STD: _series([4, 4, 1, 3, 1, 3])}, limits).signals == ()


def test_a_return_is_measured_in_stds():
    # Early std 2; best return 3. 1.9 is (3 - 1.9) / 2 = 0.55 stds below it: a warning. 0.9 is 1.05: a collapse.
    limits = CollapseThresholds(baseline_points=1, decay=0.0, patience=1)
    steady = _series([2, 2, 2])
    assert _names(diagnose({REWARD_STD: steady, RETURN: _series([1, 3, 1.9])}, limits)) == {(RETURN, "warning")}
    both = diagnose({REWARD_STD: steady, RETURN: _series([1, 3, 0.9])}, limits)
    assert _names(both) == {(RETURN, "warning"), (RETURN, "collapse")}
    assert both.status == "collapsed"
    assert diagnose({REWARD_STD: steady, RETURN: _series([1, 3, 2])}, limits).signals == ()  # exactly half a std
    assert diagnose({REWARD_STD: {0: 2.0}, RETURN: _series([1, 3, 0.9])}, limits).signals == ()  # no std to judge by


@pytest.mark.parametrize(
    ("name", "factor", "beyond"),
    [
        (REWARD_STD, 0.15, -0.01), (SUCCESS, 0.75, -0.01), (FORMAT, 0.9, -0.01), (ENTROPY, 0.1, -0.01),
        (ENTROPY, 2.5, 0.01), (DISTINCT, 0.25, -0.01), (GRADIENT, 5.0, 0.01),
    ],
)  # fmt: skip
def test_signal_needs_more_than_bound_value(name, factor, beyond):
    limits = CollapseThresholds(baseline_points=1, decay=0.0, patience=1)
    assert diagnose({name: _series([0.5, 0.5, factor * 0.5])}, limits).signals == ()
    assert _names(diagnose({name: _series([0.5, 0.5, factor * 0.5 + beyond])}, limits)) == {(name, "warning")}


def test_small_fall_of_low_success_ignored():
    limits = CollapseThresholds(baseline_points=1, decay=0.0, patience=1)
    # 0.03 is a third of 0.09, but only 0.06 below it; 0.1 is a third of 0.3 and 0.2 below.
    assert diagnose({SUCCESS: _series([0.09, 0.09, 0.03])}, limits).status == "healthy"
    assert diagnose({SUCCESS: _series([0.3, 0.3, 0.1])}, limits).status == "collapsed"


@pytest.mark.parametrize(("last", "word"), [(0.05, "fixed"), (3.0, "noise")])
def test_entropy_is_watched_on_both_sides(last, word):
    verdict = diagnose({ENTROPY: _series([1.0] * 5 + [last] * 20)})
    assert verdict.status == "warning"
    assert word in verdict.words


def test_spike_is_remembered_then_forgotten():
    # Median before the spike 1, factor 5: 5.5 is a spike. It holds for 10 more points, until iteration 6 + 10.
    norms = [1.0] * 6 + [5.5] + [1.0] * 20
    assert diagnose({GRADIENT: _series(norms[:12])}).status == "warning"
    (signal,) = diagnose({GRADIENT: _series(norms)}).signals
    assert (signal.iteration, signal.ended, signal.value, signal.baseline) == (6, 17, 5.5, 1.0)
    (early,) = diagnose({GRADIENT: _series([1, 9, 26])}, CollapseThresholds(baseline_points=2)).signals
    assert early.baseline == 5.0  # the median of 1 and 9
    (idle,) = diagnose({GRADIENT: _series([0.0] * 8 + [1.0] * 20)}).signals  # the first success of a group: no spike
    assert (idle.severity, idle.iteration, idle.ended) == ("standstill", 0, 8)


def test_drift_reported_until_it_returns():
    drift = _series([0.01, 0.05, 0.21, 0.3, 0.2, 0.01])  # a value equal to the bound, 0.2, raises no signal
    (signal,) = diagnose({DRIFT: drift}).signals
    assert (signal.iteration, signal.ended, signal.value, signal.baseline) == (2, 4, 0.21, 0.2)
    assert "0.21 nats a token from the one that sampled" in signal.words
    assert diagnose({DRIFT: {0: 0.3}}).status == "warning"  # the first update is judged too


@pytest.mark.parametrize("num_points", [0, 1, 5, 7, 8])
def test_too_few_points_raise_nothing(num_points):
    """A fall is told after a baseline of five points and three below it, a spike after the baseline."""
    limits = CollapseThresholds(decay=0.0)
    curves = {**dict.fromkeys(FALLING, [1.0] * 5 + [0.0] * 3), GRADIENT: [1.0] + [9.0] * 7}
    verdict = diagnose({name: _series(curve[:num_points]) for name, curve in curves.items()}, limits)
    assert {signal.name for signal in verdict.signals} == (FALLING if num_points == 8 else set())


a_curve = st.lists(st.floats(0, 1), min_size=8, max_size=40)


@pytest.mark.ci
@settings(max_examples=60)
@given(
    st.fixed_dictionaries(dict.fromkeys((REWARD_STD, RETURN, SUCCESS, FORMAT, ENTROPY, GRADIENT, DRIFT), a_curve)),
    st.data(),
)
def test_verdict_ignores_later_iterations(curves, data):
    cut = data.draw(st.integers(1, 40))
    whole = diagnose({name: _series(values) for name, values in curves.items()})
    prefix = diagnose({name: _series(values[:cut]) for name, values in curves.items()})
    known = [
        (s.iteration, s.name, s.severity, s.value, s.baseline, s.words) for s in whole.signals if s.iteration < cut
    ]
    assert known == [(s.iteration, s.name, s.severity, s.value, s.baseline, s.words) for s in prefix.signals]


@settings(max_examples=60)
@given(a_curve, a_curve, st.sampled_from([0.125, 4.0, 64.0]))
def test_reward_scale_does_not_matter(stds, returns, scale):
    one = diagnose({REWARD_STD: _series(stds), RETURN: _series(returns)})
    scaled = diagnose({REWARD_STD: _series(np.array(stds) * scale), RETURN: _series(np.array(returns) * scale)})
    assert [(s.iteration, s.name, s.severity) for s in one.signals] == [
        (s.iteration, s.name, s.severity) for s in scaled.signals
    ]
