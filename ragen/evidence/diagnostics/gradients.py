"""Gradients of groups by how far their returns differ: which groups carry a signal, and which only noise (RAGEN-2).

selection -> buckets of groups by reward std -> spreads of their gradients -> metrics
"""

import re
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from starpo.ragen.evidence.diagnostics.series import Series
from starpo.ragen.learning.learners.gradient_spread import GradientSpread

NUM_BUCKETS = 6
_NAME = re.compile(r"gradients/bucket_(\d+)/(\w+)")


def buckets(selection: pa.Table, num: int = NUM_BUCKETS) -> list[list[str]]:
    """Quantile buckets of the groups with a valid trajectory, by the standard deviation of their returns.

    Groups of equal deviation are in one bucket, the first that any of them belongs to; so buckets may be empty.

    Args:
        selection: Dataset `selection`.
        num: Of buckets.

    Returns:
        Ids of groups, from the smallest deviation to the largest.
    """
    valid = selection.filter(pc.greater(selection["num_valid"], 0))
    stds, ids = valid["return_std"].to_numpy(), valid["group_id"].to_pylist()
    num_smaller = np.searchsorted(np.sort(stds), stds, side="left")
    found: list[list[str]] = [[] for _ in range(num)]
    for group_id, smaller in zip(ids, num_smaller.tolist(), strict=True):
        found[smaller * num // len(ids)].append(group_id)
    return found


def gradient_metrics(
    selection: pa.Table, groups: Sequence[Sequence[str]], spreads: Sequence[Mapping[str, GradientSpread]]
) -> dict[str, float]:
    """What each bucket's gradients are made of.

    Of bucket k: `bucket_k/num_groups`, `bucket_k/reward_std` (mean over its groups), and of each term of the loss
    `bucket_k/<term>_norm`, of the mean of the groups' gradients, and `bucket_k/<term>_snr`: squared norm of the
    expected gradient over the variance of one group's, estimated without bias and cut at 0.

    Args:
        selection: Dataset `selection`.
        groups: Its buckets.
        spreads: Of each bucket, by term.

    Returns:
        Names, each beginning with `gradients/`, and values. Empty buckets, and ratios that do not exist, are absent.
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


def gradient_rows(series: Mapping[str, Series]) -> dict[int, list[dict[str, str]]]:
    """What was measured, as a table an iteration: a row a bucket, from the smallest reward std to the largest.

    Args:
        series: Metric -> iteration -> value; names of `gradient_metrics` are read.
    """
    tables: dict[int, dict[int, dict[str, str]]] = {}
    for name, values in series.items():
        found = _NAME.fullmatch(name)
        if found is None:
            continue
        for iteration, value in values.items():
            row = tables.setdefault(iteration, {}).setdefault(int(found[1]), {"bucket": found[1]})
            row[found[2].replace("_", " ")] = f"{value:.3g}"
    columns = dict.fromkeys(name for rows in tables.values() for row in rows.values() for name in row)
    return {
        iteration: [{name: rows[bucket].get(name, "") for name in columns} for bucket in sorted(rows)]
        for iteration, rows in sorted(tables.items())
    }
