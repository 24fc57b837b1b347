"""Back-test of alarms over stored runs: how early each rule rang before the fall, and how often it was false.

series of a run -> when it fell, in hindsight; when each rule rang, causally -> outcomes -> score of each rule
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from starpo.ragen.evidence.diagnostics.collapse import (
    DISTINCT,
    DRIFT,
    ENTROPY,
    FORMAT,
    GRADIENT,
    RETURN,
    REWARD_STD,
    SUCCESS,
    Severity,
    Status,
    diagnose,
)
from starpo.ragen.evidence.diagnostics.series import Series

EVALUATED = "evaluation/success"
"""Success on the panel of the training environment, whatever the run calls it."""
_WINDOW = 5
"""Width of the centred mean used to detect a fall, and the minimum number of points below half of the peak."""
MIN_POINTS = 2 * _WINDOW
"""Minimum number of success values for a run to be judged."""


@dataclass(frozen=True)
class Rule:
    """An alarm.

    Attributes:
        name: Name in tables.
        words: Condition under which it rings.
        ring: Series of a run -> first iteration at which it rings, given only that and earlier ones; None for never.
    """

    name: str
    words: str
    ring: Callable[[Mapping[str, Series]], int | None]


@dataclass(frozen=True)
class Outcome:
    """The result of one rule on one run.

    Attributes:
        run: Name of the run.
        fell: Iteration at which success had halved for good; None if it never did.
        rang: Iteration at which the rule first rang; None if it never did.
    """

    run: str
    fell: int | None
    rang: int | None

    @property
    def lead(self) -> int | None:
        """Iterations from the alarm to the fall, negative if the alarm came later; None unless both exist."""
        return None if self.fell is None or self.rang is None else self.fell - self.rang


@dataclass(frozen=True)
class Score:
    """The results of a rule over all runs.

    Attributes:
        rule: The rule.
        outcomes: One per run.
    """

    rule: Rule
    outcomes: tuple[Outcome, ...]

    @property
    def leads(self) -> list[int]:
        """Leads in the runs that fell and in which the rule rang, ascending."""
        return sorted(outcome.lead for outcome in self.outcomes if outcome.lead is not None)

    @property
    def num_fallen(self) -> int:
        """Number of runs that fell."""
        return sum(outcome.fell is not None for outcome in self.outcomes)

    @property
    def num_early(self) -> int:
        """Number of fallen runs in which the rule rang before the fall."""
        return sum(lead > 0 for lead in self.leads)

    @property
    def num_missed(self) -> int:
        """Number of fallen runs in which the rule never rang."""
        return self.num_fallen - len(self.leads)

    @property
    def num_false(self) -> int:
        """Number of runs that did not fall but in which the rule rang."""
        return sum(outcome.fell is None and outcome.rang is not None for outcome in self.outcomes)

    @property
    def median_lead(self) -> float | None:
        """Median lead in iterations; None if the rule rang in no fallen run."""
        return statistics.median(self.leads) if self.leads else None


def fall(success: Series) -> int | None:
    """Find when success had halved for good, in hindsight.

    The curve is smoothed by a centred mean of five points, which does not lag: a lag would make every alarm look
    earlier than it is.

    Args:
        success: Training success, by iteration.

    Returns:
        The first iteration after the peak from which success stays below half of the peak, for at least five points.
        None if there is no such iteration, or fewer than ten points.
    """
    if len(success) < MIN_POINTS:
        return None
    iterations, values = list(success), np.array(list(success.values()))
    reach = _WINDOW // 2
    smooth = np.array([values[max(0, point - reach) : point + reach + 1].mean() for point in range(len(values))])
    peak = int(smooth.argmax())
    above = np.flatnonzero(smooth >= 0.5 * smooth[peak])
    start = int(above[-1]) + 1
    return iterations[start] if len(values) - start >= _WINDOW else None


def backtest(runs: Mapping[str, Mapping[str, Series]]) -> list[Score]:
    """Evaluate every rule on every run.

    Args:
        runs: Name -> metric name -> iteration -> value; `EVALUATED` for success on the panel.

    Returns:
        Scores of the rules, ordered by most early alarms, then fewest false alarms, then longest median lead.
    """
    fallen = {name: fall(series.get(SUCCESS, {})) for name, series in runs.items()}
    scores = [
        Score(rule, tuple(Outcome(name, fallen[name], rule.ring(series)) for name, series in runs.items()))
        for rule in RULES
    ]
    return sorted(scores, key=lambda score: (-score.num_early, score.num_false, -(score.median_lead or 0)))


def _first_signal(name: str, severity: Severity, series: Mapping[str, Series]) -> int | None:
    raised = (signal for signal in diagnose(series).signals if (signal.name, signal.severity) == (name, severity))
    return next((signal.iteration for signal in raised), None)


def _first_verdict(statuses: Sequence[Status], series: Mapping[str, Series]) -> int | None:
    verdict = diagnose(series)
    raised = dict.fromkeys(signal.iteration for signal in verdict.signals)  # the status can only worsen at these
    return next((iteration for iteration in raised if verdict.at(iteration) in statuses), None)


def _std_below_a_tenth(series: Mapping[str, Series]) -> int | None:
    """RAGEN-2's first stopping rule: ten values in a row below a tenth of the mean of the first ten."""
    points = list(series.get(REWARD_STD, {}).items())
    bound = 0.1 * statistics.fmean(value for _, value in points[:10]) if len(points) > 10 else 0.0
    return _first_row([(iteration, value < bound) for iteration, value in points[10:]], 10)


def _success_below_one_percent(series: Mapping[str, Series]) -> int | None:
    """RAGEN-2's second stopping rule: five evaluations in a row below one percent."""
    return _first_row([(iteration, value < 0.01) for iteration, value in series.get(EVALUATED, {}).items()], 5)


def _first_row(points: Sequence[tuple[int, bool]], length: int) -> int | None:
    num = 0
    for iteration, holds in points:
        num = num + 1 if holds else 0
        if num == length:
            return iteration
    return None


def _signal(name: str, severity: Severity, words: str) -> Rule:
    return Rule(f"{name} {severity}", words, partial(_first_signal, name, severity))


RULES = (
    Rule("verdict collapsing", "warnings of two metrics at once", partial(_first_verdict, ("collapsing", "collapsed"))),
    Rule("verdict collapsed", "what was learned is lost", partial(_first_verdict, ("collapsed",))),
    _signal(REWARD_STD, "warning", "in-group reward std falls, more than success explains"),
    _signal(GRADIENT, "warning", "gradient norm spikes"),
    _signal(DRIFT, "warning", "an update ends over 0.2 nats per token away from the policy that sampled"),
    _signal(ENTROPY, "warning", "entropy falls to a tenth or rises to 2.5 times"),
    _signal(DISTINCT, "warning", "distinct responses fall to a quarter"),
    _signal(FORMAT, "warning", "well-formed responses below 90% of their best"),
    _signal(FORMAT, "collapse", "well-formed responses below half of their best"),
    _signal(RETURN, "warning", "mean return half an early in-group std below its best"),
    _signal(RETURN, "collapse", "mean return an early in-group std below its best"),
    _signal(SUCCESS, "warning", "success below three quarters of its best"),
    _signal(SUCCESS, "collapse", "success below half of its best"),
    Rule("RAGEN-2 std", "in-group reward std below a tenth of its first ten, ten in a row", _std_below_a_tenth),
    Rule("RAGEN-2 success", "evaluated success below 1%, five in a row", _success_below_one_percent),
)
"""Rules evaluated by `backtest`."""
