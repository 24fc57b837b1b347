"""Gradients of groups by the std of their returns: which groups carry a signal, and which only noise (RAGEN-2).

selection -> buckets of groups by reward std -> spreads of their gradients -> metrics
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from starpo.ragen.learning.learners.gradient_spread import GradientSpread
from starpo.schemas.rules import ZERO_VARIANCE_STD

NUM_BUCKETS = 6


def buckets(selection: pa.Table) -> list[list[str]]:
    """Divide the groups with a valid trajectory into quantile buckets by the standard deviation of their returns.

    Groups of equal deviation share a bucket, the first that any of them belongs to; so buckets may be empty. Deviations
    up to `ZERO_VARIANCE_STD` count as equal: returns that differ by rounding alone have one.

    Args:
        selection: Dataset `selection`.

    Returns:
        Group ids of each bucket, from the smallest deviation to the largest.
    """
    valid = selection.filter(pc.greater(selection["num_valid"], 0))
    stds, ids = np.maximum(valid["return_std"].to_numpy(), ZERO_VARIANCE_STD), valid["group_id"].to_pylist()
    num_smaller = np.searchsorted(np.sort(stds), stds, side="left")
    groups: list[list[str]] = [[] for _ in range(NUM_BUCKETS)]
    for group_id, smaller in zip(ids, num_smaller.tolist(), strict=True):
        groups[smaller * NUM_BUCKETS // len(ids)].append(group_id)
    return groups


def gradient_metrics(
    selection: pa.Table, groups: Sequence[Sequence[str]], spreads: Sequence[Mapping[str, GradientSpread]]
) -> dict[str, float]:
    """Compute metrics of the gradients of each bucket.

    For bucket k: `bucket_k/num_groups`, `bucket_k/reward_std` (mean over its groups), and for each term of the loss
    `bucket_k/<term>_norm`, the norm of the mean of the groups' gradients, and `bucket_k/<term>_snr`: squared norm of
    the expected gradient over the variance of one group's gradient, estimated without bias and clamped at 0.

    Args:
        selection: Dataset `selection`.
        groups: Buckets of group ids.
        spreads: Gradient spreads of each bucket, by term.

    Returns:
        Names, each prefixed with `gradients/`, and values. Empty buckets and undefined ratios are absent.
    """
    stds = dict(zip(selection["group_id"].to_pylist(), selection["return_std"].to_pylist(), strict=True))
    values: dict[str, float] = {}
    for number, (bucket, terms) in enumerate(zip(groups, spreads, strict=True), start=1):
        if not bucket:
            continue
        prefix = f"gradients/bucket_{number}"
        values[f"{prefix}/num_groups"] = len(bucket)
        values[f"{prefix}/reward_std"] = float(np.mean([stds[group_id] for group_id in bucket]))
        for term, spread in terms.items():
            if spread.num:
                values[f"{prefix}/{term}_norm"] = spread.norm
            if np.isfinite(spread.signal_to_noise):
                values[f"{prefix}/{term}_snr"] = spread.signal_to_noise
    return values
