"""Filter strategies: pure functions from the scores of groups to a mask of those that are kept.

A strategy sees scores only: float64 [groups], larger is better, and `-inf` marks a group that is not eligible (no valid
trajectory, or zero variance). It returns bool [groups]. Ties go to the earlier group, every strategy keeps a prefix of
the groups sorted by score, and no group can be kept twice. If all scores are `-inf`, or there are none, nothing is
kept. Each strategy is registered in `ragen.core.registry.FILTERS`.

Sources: StarPO-S, arXiv 2504.20073, section on uncertainty-based filtering (`top_fraction`); RAGEN-2, arXiv
2604.06268 (the others).
"""

import math

import numpy as np

from starpo.ragen.config.filter import FilterConfig

SHARE_ROUNDING = 1e-9
"""Tolerance, relative to the total, for comparing a running sum of scores with a share of their total: rounding must
not add a group. (Relative, so that the choice does not depend on the scale of the rewards.)"""


def keep_all(scores: np.ndarray, config: FilterConfig) -> np.ndarray:
    """Keep every eligible group."""
    return np.isfinite(scores)


def top_fraction(scores: np.ndarray, config: FilterConfig) -> np.ndarray:
    """Keep the best share `keep` of all groups: round(keep * groups), half up, and at least one.

    The share is of all groups of the rollout, as in the paper, not of the eligible ones, so the size of an update stays
    the same as long as enough groups have variance. If fewer are eligible, fewer are kept.
    """
    # A share such as 0.29 of 50 is 14.499999999999998 in floating point and must round up.
    return _best(scores, max(1, math.floor(config.keep * len(scores) + 0.5 + 1e-9)))


def top_k(scores: np.ndarray, config: FilterConfig) -> np.ndarray:
    """Keep the best `keep_count` groups, or all eligible ones if they are fewer."""
    assert config.keep_count is not None, "StarPOConfig rejects 'top_k' without keep_count"
    return _best(scores, config.keep_count)


def top_p_linear(scores: np.ndarray, config: FilterConfig) -> np.ndarray:
    """Keep the fewest best groups whose scores add up to at least `keep` of the total, up to rounding.

    Scores must not be negative (`FilterConfig` rejects metrics that can be). Groups with score 0 have no share of the
    total and are not kept; if the total is 0, nothing is.
    """
    weights = np.where(np.isfinite(scores), scores, 0.0)
    assert (weights >= 0).all(), "shares of a total need non-negative scores"
    return _heaviest(scores, weights, config.keep)


def top_p_softmax(scores: np.ndarray, config: FilterConfig) -> np.ndarray:
    """Keep the fewest best groups that hold at least `keep` of the softmax of the scores.

    The softmax of a zero score is not zero, so groups without variance could be kept here. With
    `should_drop_zero_variance` their scores are `-inf`, and they have no weight.
    """
    if not np.isfinite(scores).any():
        return np.zeros(len(scores), dtype=bool)
    return _heaviest(scores, np.exp(scores - scores.max()), config.keep)


def min_p(scores: np.ndarray, config: FilterConfig) -> np.ndarray:
    """Keep the groups whose score is at least `keep` times the best one; a larger `keep` keeps fewer.

    Scores must not be negative (`FilterConfig` rejects metrics that can be).
    """
    if not np.isfinite(scores).any():
        return np.zeros(len(scores), dtype=bool)
    return scores >= config.keep * scores.max() * (1 - SHARE_ROUNDING)


def _best(scores: np.ndarray, count: int) -> np.ndarray:
    """Mark the `count` best eligible groups, bool [groups]; ties go to the earlier group."""
    is_kept = np.zeros(len(scores), dtype=bool)
    is_kept[np.argsort(-scores, kind="stable")[:count]] = True
    return is_kept & np.isfinite(scores)


def _heaviest(scores: np.ndarray, weights: np.ndarray, share: float) -> np.ndarray:
    """Mark the fewest best groups that hold `share` of the total weight, bool [groups]."""
    held = np.cumsum(weights[np.argsort(-scores, kind="stable")])
    if len(held) == 0 or held[-1] == 0:
        return np.zeros(len(scores), dtype=bool)
    count = int(np.searchsorted(held, held[-1] * (share - SHARE_ROUNDING))) + 1
    return _best(scores, count)
