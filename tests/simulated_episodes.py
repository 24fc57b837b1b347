"""Episodes of two policies with known means, to measure how often intervals hold the truth.

Each state has a probability of success, Beta(a, b), that its episodes share; the second policy succeeds more often by
`change` times p (1 - p). The return is 10 for success, minus the cost of the state and of chance (Gamma, exponential).
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from starpo.ragen.agents.evaluation.clusters import cluster_mean, mean_t_interval
from starpo.ragen.agents.evaluation.comparison import Counts, paired_comparison
from starpo.ragen.agents.evaluation.intervals import Interval, success_interval


@dataclass(frozen=True)
class Design:
    """States, episodes of each, and the Beta distribution of their success."""

    num_states: int
    num_episodes: int
    a: float = 0.75
    b: float = 0.75
    change: float = 0.4

    @property
    def success(self) -> float:
        """Mean success of the first policy."""
        return self.a / (self.a + self.b)

    @property
    def difference(self) -> float:
        """Mean success of the second policy minus that of the first: change E[p (1 - p)]."""
        total = self.a + self.b
        return self.change * self.a * self.b / (total * (total + 1))


def coverage(design: Design, num_repetitions: int, seed: int = 0) -> dict[str, tuple[float, float]]:
    """Simulate measurements, and return kind of interval -> (share that holds the truth, mean width)."""
    random, hits, widths = np.random.default_rng(seed), Counter[str](), Counter[str]()
    truth = {
        "success": design.success,
        "return": 10 * design.success - 2,
        "success difference": design.difference,
        "return difference": 10 * design.difference,
    }
    num = np.full(design.num_states, design.num_episodes)
    for _ in range(num_repetitions):
        success, returns = _play(design, random)
        sums, return_sums = success.sum(axis=2), returns.sum(axis=2)
        intervals: dict[str, Interval | None] = {
            "success": success_interval(sums[0], num),
            "return": mean_t_interval(return_sums[0], num),
            "success difference": _paired(sums, num, 1.0),
            "return difference": _paired(return_sums, num, None),
            "success, normal": _normal(cluster_mean(sums[0], num)),
            "return, normal": _normal(cluster_mean(return_sums[0], num)),
            "success, over episodes": _normal(cluster_mean(success[0].ravel(), np.ones(success[0].size))),
            "success difference, unpaired": _unpaired(sums, num),
            "return difference, unpaired": _unpaired(return_sums, num),
        }
        for name, interval in intervals.items():
            if interval:
                hits[name] += interval[0] <= truth[name.partition(",")[0]] <= interval[1]
                widths[name] += interval[1] - interval[0]
    return {name: (hits[name] / num_repetitions, widths[name] / num_repetitions) for name in widths}


def _play(design: Design, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return success and return of both policies. [policies, states, episodes]"""
    rate = random.beta(design.a, design.b, design.num_states)
    rates = np.array([rate, rate + design.change * rate * (1 - rate)])[:, :, None]
    shape = (2, design.num_states, design.num_episodes)
    success = random.random(shape) < rates
    cost = random.gamma(2.0, 0.5, design.num_states)[None, :, None] + random.exponential(1.0, shape)
    return success.astype(float), 10 * success - cost


def _paired(sums: np.ndarray, num: np.ndarray, reach: float | None) -> Interval:
    first, second = (_counts(of, num) for of in sums)
    difference = paired_comparison([(second, first)], reach)
    return difference.low, difference.high


def _counts(sums: np.ndarray, num: np.ndarray) -> Counts:
    return {(state, ""): (float(total), int(n)) for state, (total, n) in enumerate(zip(sums, num, strict=True))}


def _normal(mean_and_error: tuple[float, float]) -> Interval:
    mean, error = mean_and_error
    return mean - 1.96 * error, mean + 1.96 * error


def _unpaired(sums: np.ndarray, num: np.ndarray) -> Interval:
    (first, error), (second, other) = (cluster_mean(of, num) for of in sums)
    return _normal((second - first, float(np.hypot(error, other))))
