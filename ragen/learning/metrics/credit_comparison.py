"""Which estimator gives credit where it is due: estimates of the turns of stored trajectories beside their true credit.

credits, credit_estimates, turns -> compare_credit -> CreditComparison

Legend: n turns with true credit and an estimate.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from starpo.ragen.agents.evaluation.paired import SEED
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.learning.metrics.credit_statistics import (
    Resamples,
    Statistic,
    attainable,
    error_share,
    is_significant,
    largest_is_in,
    rank_correlation,
    rank_correlations_within,
    shares_of_square,
    sign_agreements,
    slope,
    statistic,
    true_correlation,
)

KINDS = {
    "decisive": "the 95% interval of the true advantage excludes 0, and |advantage| is in its top quarter",
    "futile": "not decisive, and no continuation from the state before succeeds",
    "safe": "not decisive, and every continuation from the state before succeeds",
    "forced": "none of these, and the policy gave its response a probability of at least 0.95",
    "other": "none of these",
}
"""Kind of a turn, by what is known of its truth -> its definition; the first that applies."""
POSITIONS = ("first", "middle", "last")
"""Position of a turn in its trajectory; the only one is the last."""
RANDOM = "random"
"""The true advantages, permuted over all turns: what knowing their distribution alone gives."""
HALVES = "monte_carlo half"
"""Advantages by the continuations with an even number, against those with an odd number as truth."""
_FORCED = 0.95


@dataclass(frozen=True)
class CreditedTurns:
    """Turns with their true credit.

    Attributes:
        places: Trajectory and turn of each. [n]
        groups: Group of each. [n]
        trajectory: Number of its trajectory. int64 [n]
        advantage: True advantage, by Monte Carlo. float64 [n]
        error: Its standard error. float64 [n]
        value: True value before the turn. float64 [n]
        value_error: Its standard error. float64 [n]
        halves: The advantages by the continuations with an even number, and by those with an odd one. float64 [2, n]
        kind: One of `KINDS`. [n]
        position: One of `POSITIONS`. [n]
    """

    places: list[tuple[str, int]]
    groups: list[str]
    trajectory: np.ndarray
    advantage: np.ndarray
    error: np.ndarray
    value: np.ndarray
    value_error: np.ndarray
    halves: np.ndarray
    kind: np.ndarray
    position: np.ndarray


@dataclass(frozen=True)
class PartAgreement:
    """Agreement of an estimator on turns of one kind or position.

    Attributes:
        num_turns: Such turns that it says something of.
        rank_correlation: Spearman's rho over these turns.
        right_signs: Share of right signs among those whose interval excludes 0.
        square_share: Their share of the sum of its squared estimates: where its credit goes.
    """

    num_turns: int
    rank_correlation: Statistic | None
    right_signs: Statistic | None
    square_share: Statistic | None


@dataclass(frozen=True)
class Agreement:
    """Agreement of an estimator with the truth; None where it is not defined.

    Attributes:
        estimator: Name of the estimator.
        num_turns: Turns that it says something of.
        num_trajectories: Trajectories of at least three of them, the true advantage of one of which differs from 0.
        within: Spearman's rho within each of these, the mean over them.
        overall: Spearman's rho over all turns.
        num_significant: Turns whose interval of the truth excludes 0.
        right_signs: Share of these whose sign is right; an estimate of 0 counts as half.
        num_decided: Trajectories with decisive turns and others.
        finds_decisive: Share of these in which the turn with the largest |estimate| is a decisive one.
        error_share: Squared error after the best scale, as a share of the truth's square, without its noise.
        parts: Kind or position -> agreement there; only those that occur.
    """

    estimator: str
    num_turns: int
    num_trajectories: int
    within: Statistic | None
    overall: Statistic | None
    num_significant: int
    right_signs: Statistic | None
    num_decided: int
    finds_decisive: Statistic | None
    error_share: Statistic | None
    parts: dict[str, PartAgreement] = field(default_factory=dict)


@dataclass(frozen=True)
class Calibration:
    """A critic's values beside the true values before the turns.

    Attributes:
        num_turns: Turns with both.
        slope: Of the regression of the true value on the critic's: 1 if it is calibrated, less if its differences are
            too large.
        correlation: With the true value, whose noise is subtracted.
        offset: Mean of the critic's value minus the true one, in units of return.
    """

    num_turns: int
    slope: Statistic | None
    correlation: Statistic | None
    offset: Statistic | None


@dataclass(frozen=True)
class CreditComparison:
    """Estimators beside the truth.

    Attributes:
        num_groups: Groups of the turns.
        num_trajectories: Trajectories.
        num_turns: Turns with true credit and an estimate.
        num_significant: Turns whose interval of the true advantage excludes 0.
        noise_share: Share of the truth's mean square that is noise of its Monte Carlo.
        attainable_within: `within` of a perfect estimator, given that noise.
        attainable_overall: Its `overall`.
        square_shares: Kind or position -> share of the sum of squared true advantages, noise included, on its turns.
        agreements: Estimators by `overall`, the best first; then the random assignment and the half of the truth.
        calibration: Of the critic; None without one.
        truth: The turns.
        estimates: Estimator -> its estimates of them; NaN where it has none. float64 [n]
    """

    num_groups: int
    num_trajectories: int
    num_turns: int
    num_significant: int
    noise_share: float
    attainable_within: Statistic | None
    attainable_overall: Statistic | None
    square_shares: dict[str, float]
    agreements: list[Agreement]
    calibration: Calibration | None
    truth: CreditedTurns = field(repr=False, compare=False)
    estimates: dict[str, np.ndarray] = field(repr=False, compare=False)


@dataclass(frozen=True)
class ComparedCredit:
    """Estimators beside the truth, at one iteration of a run.

    Attributes:
        run: The run's name.
        iteration: The iteration.
        comparison: How far each agrees with the truth.
        methods: Estimator -> the methods that use it (`run`: the run's own); none for what is always compared.
        left_out: Method -> why its estimator could not be computed.
        key: Key of the stored estimates.
    """

    run: str
    iteration: int
    comparison: CreditComparison
    methods: dict[str, list[str]]
    left_out: dict[str, str]
    key: str


def compare_credit(credits: pa.Table, estimates: pa.Table, turns: pa.Table) -> CreditComparison:
    """Compare estimates with the truth, at the turns that have both. Deterministic.

    Args:
        credits: Dataset `credits`.
        estimates: Dataset `credit_estimates`.
        turns: Columns trajectory_id, turn and behaviour_logprobs of `turns`.

    Raises:
        ConfigError: If no turn has both.
    """
    by_estimator = read_estimates(estimates)
    truth = credited_turns(credits, turns, {place for _, values in by_estimator.values() for place in values})
    columns = {
        name: (quantity, np.array([values.get(place, np.nan) for place in truth.places]))
        for name, (quantity, values) in by_estimator.items()
    }
    resamples = Resamples(truth.groups)
    advantages = {
        name: x_n for name, (quantity, x_n) in columns.items() if quantity == "advantage" and np.isfinite(x_n).any()
    }
    agreements = [_agreement(name, x_n, truth, truth.advantage) for name, x_n in advantages.items()]
    agreements.sort(key=lambda one: -one.overall.value if one.overall else 2)
    permuted_n = np.random.default_rng(SEED).permutation(truth.advantage)
    of_half = _agreement(HALVES, truth.halves[0], truth, truth.halves[1], widening=float(np.sqrt(2)))
    critics = [x_n for quantity, x_n in columns.values() if quantity == "value" and np.isfinite(x_n).any()]
    parts = {
        part: float(shares_of_square(truth.advantage, is_in_n, resamples)[0]) for part, is_in_n in _parts(truth).items()
    }
    return CreditComparison(
        num_groups=len(set(truth.groups)),
        num_trajectories=len(set(truth.trajectory.tolist())),
        num_turns=len(truth.places),
        num_significant=int(is_significant(truth.advantage, truth.error).sum()),
        noise_share=float(np.mean(truth.error**2) / max(np.mean(truth.advantage**2), 1e-12)),
        attainable_within=attainable(of_half.within),
        attainable_overall=attainable(of_half.overall),
        square_shares={part: value for part, value in parts.items() if np.isfinite(value)},
        agreements=[*agreements, _agreement(RANDOM, permuted_n, truth, truth.advantage), of_half],
        calibration=_calibration(critics[0], truth) if critics else None,
        truth=truth,
        estimates=advantages,
    )


def read_estimates(estimates: pa.Table) -> dict[str, tuple[str, dict[tuple[str, int], float]]]:
    """Return estimator -> quantity, and trajectory and turn -> estimate, in the order stored."""
    by_estimator: dict[str, tuple[str, dict[tuple[str, int], float]]] = {}
    columns = ("estimator", "quantity", "trajectory_id", "turn", "estimate")
    for name, quantity, trajectory, turn, estimate in zip(
        *(estimates[column].to_pylist() for column in columns), strict=True
    ):
        by_estimator.setdefault(name, (quantity, {}))[1][trajectory, turn] = estimate
    return by_estimator


def credited_turns(credits: pa.Table, turns: pa.Table, wanted: set[tuple[str, int]]) -> CreditedTurns:
    """Read the true credit of some turns, and tell their kinds.

    Raises:
        ConfigError: If none of them has true credit.
    """
    rows = credits.to_pylist()
    by_place = {(row["trajectory_id"], row["turn"]): row for row in rows}
    last = dict(sorted(by_place))
    rows = [row for place, row in sorted(by_place.items()) if place in wanted]
    if not rows:
        raise ConfigError(
            f"none of the {len(by_place)} turns with true credit is in the update, so there is nothing to compare: the "
            "filter dropped their groups, or they have no response; choose kept groups"
        )
    half_advantages = [_half_advantages(row, by_place.get((row["trajectory_id"], row["turn"] + 1))) for row in rows]
    columns = {
        name: np.array([row[name] for row in rows], dtype=np.float64)
        for name in ("advantage", "advantage_se", "value", "value_se", "success")
    }
    places = [(row["trajectory_id"], row["turn"]) for row in rows]
    likely = _probabilities(turns)
    position = [
        "last" if turn == last[trajectory] else "first" if turn == 0 else "middle" for trajectory, turn in places
    ]
    return CreditedTurns(
        places=places,
        groups=[row["group_id"] for row in rows],
        trajectory=np.unique([trajectory for trajectory, _ in places], return_inverse=True)[1],
        advantage=columns["advantage"],
        error=columns["advantage_se"],
        value=columns["value"],
        value_error=columns["value_se"],
        halves=np.array(half_advantages).T,
        kind=turn_kinds(
            columns["advantage"],
            columns["advantage_se"],
            columns["success"],
            np.array([likely.get(place, 0.0) for place in places]),
        ),
        position=np.array(position),
    )


def turn_kinds(
    advantage_n: np.ndarray, error_n: np.ndarray, success_n: np.ndarray, probability_n: np.ndarray
) -> np.ndarray:
    """Tell the kind of each turn, as `KINDS` defines it.

    Args:
        advantage_n: True advantages.
        error_n: Their standard errors.
        success_n: Share of the continuations from before the turn that succeed.
        probability_n: Probability of the response under the policy that sampled it.
    """
    is_large_n = np.abs(advantage_n) >= np.quantile(np.abs(advantage_n), 0.75)
    conditions = [
        is_significant(advantage_n, error_n) & is_large_n, success_n == 0, success_n == 1, probability_n >= _FORCED
    ]  # fmt: skip
    return np.select(conditions, list(KINDS)[:-1], default=list(KINDS)[-1])


def _half_advantages(row: Mapping[str, object], following: Mapping[str, object] | None) -> tuple[float, float]:
    def half(parity: int) -> float:
        before = np.mean(row["returns"][parity::2])  # type: ignore[index]
        after = np.mean(following["returns"][parity::2]) if following else 0.0  # type: ignore[index]
        return float(row["reward"] + after - before)  # type: ignore[operator]

    return half(0), half(1)


def _probabilities(turns: pa.Table) -> dict[tuple[str, int], float]:
    columns = (turns[name].to_pylist() for name in ("trajectory_id", "turn", "behaviour_logprobs"))
    return {
        (trajectory, turn): float(np.exp(np.sum(logprobs))) if logprobs else 0.0
        for trajectory, turn, logprobs in zip(*columns, strict=True)
    }


def _parts(truth: CreditedTurns) -> dict[str, np.ndarray]:
    named = [(truth.kind, KINDS), (truth.position, POSITIONS)]
    return {name: of_n == name for of_n, names in named for name in names if (of_n == name).any()}


def _agreement(
    name: str, x_n: np.ndarray, truth: CreditedTurns, t_n: np.ndarray, *, widening: float = 1.0
) -> Agreement:
    """Compare one estimator with a truth whose standard errors are the stored ones, times `widening`."""
    is_there_n = np.isfinite(x_n)
    x_n, t_n, error_n = x_n[is_there_n], t_n[is_there_n], widening * truth.error[is_there_n]
    trajectory_n = truth.trajectory[is_there_n]
    resamples = Resamples(_chosen(truth.groups, is_there_n))
    is_not_0_n = is_significant(truth.advantage, truth.error)[is_there_n]
    within_n = rank_correlations_within(x_n, t_n, trajectory_n, is_not_0_n)
    signs_n = sign_agreements(x_n, t_n, error_n)
    finds_n = largest_is_in(x_n, truth.kind[is_there_n] == "decisive", trajectory_n)
    parts = {}
    for part, is_in_n in _parts(truth).items():
        is_in_n = is_in_n[is_there_n]
        if not is_in_n.any():
            continue
        parts[part] = PartAgreement(
            num_turns=int(is_in_n.sum()),
            rank_correlation=statistic(rank_correlation(x_n, t_n, resamples, np.flatnonzero(is_in_n))),
            right_signs=resamples.share(np.where(is_in_n, signs_n, np.nan)),
            square_share=statistic(shares_of_square(x_n, is_in_n, resamples)),
        )
    return Agreement(
        estimator=name,
        num_turns=len(x_n),
        num_trajectories=int(np.isfinite(within_n).sum()),
        within=statistic(resamples.means(within_n)),
        overall=statistic(rank_correlation(x_n, t_n, resamples)),
        num_significant=int(np.isfinite(signs_n).sum()),
        right_signs=resamples.share(signs_n),
        num_decided=int(np.isfinite(finds_n).sum()),
        finds_decisive=resamples.share(finds_n),
        error_share=statistic(error_share(x_n, t_n, error_n, resamples)),
        parts=parts,
    )


def _calibration(value_n: np.ndarray, truth: CreditedTurns) -> Calibration:
    is_there_n = np.isfinite(value_n)
    x_n, t_n, error_n = (of_n[is_there_n] for of_n in (value_n, truth.value, truth.value_error))
    resamples = Resamples(_chosen(truth.groups, is_there_n))
    return Calibration(
        num_turns=len(x_n),
        slope=statistic(slope(x_n, t_n, resamples)),
        correlation=statistic(true_correlation(x_n, t_n, error_n, resamples)),
        offset=statistic(resamples.means(x_n - t_n)),
    )


def _chosen(names: Sequence[str], is_chosen: np.ndarray) -> list[str]:
    return [name for name, chosen in zip(names, is_chosen.tolist(), strict=True) if chosen]
