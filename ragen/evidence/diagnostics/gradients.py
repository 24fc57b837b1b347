"""Gradients of groups by the std of their returns: which groups carry a signal, and which only noise (RAGEN-2).

selection -> buckets of groups by reward std -> spreads of their gradients -> metrics
"""

import re
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from starpo.ragen.core.pictures import COLOURS, new_figure, style, svg
from starpo.ragen.evidence.diagnostics.series import Series
from starpo.ragen.learning.learners.gradient_spread import GradientSpread
from starpo.schemas.rules import ZERO_VARIANCE_STD

NUM_BUCKETS = 6
_MAX_PANELS = 6
_NAME = re.compile(r"gradients/bucket_(\d+)/(\w+)")


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
    found: list[list[str]] = [[] for _ in range(NUM_BUCKETS)]
    for group_id, smaller in zip(ids, num_smaller.tolist(), strict=True):
        found[smaller * NUM_BUCKETS // len(ids)].append(group_id)
    return found


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


def measured(series: Mapping[str, Series]) -> dict[int, dict[int, dict[str, float]]]:
    """Collect the results of `gradient_metrics`: iteration -> bucket -> last part of name -> value; keys ascending."""
    found: dict[int, dict[int, dict[str, float]]] = {}
    for name, values in series.items():
        if match := _NAME.fullmatch(name):
            for iteration, value in values.items():
                found.setdefault(iteration, {}).setdefault(int(match[1]), {})[match[2]] = value
    return {iteration: dict(sorted(of.items())) for iteration, of in sorted(found.items())}


def draw_gradients(run: str, found: Mapping[int, Mapping[int, Mapping[str, float]]]) -> str:
    """Plot the gradient norm of every term over the reward std of its groups, one panel per iteration, as SVG.

    Args:
        run: Name of the run.
        found: Result of `measured` for at least one iteration; of more than six, six are drawn.
    """
    iterations = list(found)
    if len(iterations) > _MAX_PANELS:
        iterations = [iterations[round(at)] for at in np.linspace(0, len(iterations) - 1, _MAX_PANELS)]
    columns = 2 if len(iterations) in (2, 4) else min(3, len(iterations))
    rows = -(-len(iterations) // columns)
    with style():
        note = "A dot: a bucket of groups, at the mean std of their returns; filled if the signal-to-noise ratio > 0."
        figure = new_figure(max(5.2, 3.1 * columns), 0.9 + 2.3 * rows, f"Gradients of {run}", note)
        grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
        for axes in grid.flat[len(iterations) :]:
            axes.set_visible(False)
        for axes, iteration in zip(grid.flat, iterations, strict=False):
            axes.set_title(f"iteration {iteration}")
            for term, colour in zip(("task", "kl", "entropy"), COLOURS, strict=False):
                of_term = [bucket for bucket in found[iteration].values() if f"{term}_norm" in bucket]
                if not of_term:
                    continue
                stds, norms = ([b[name] for b in of_term] for name in ("reward_std", f"{term}_norm"))
                axes.plot(stds, norms, color=colour, linewidth=1, label=term)
                is_signal = [b.get(f"{term}_snr", 0.0) > 0 for b in of_term]
                faces = [colour if signal else "white" for signal in is_signal]
                axes.scatter(stds, norms, s=22, facecolors=faces, edgecolors=colour, zorder=3)
            axes.grid(axis="y")
        grid[0, 0].legend()
        figure.supxlabel("in-group std of returns", fontsize=9, color="#5b6472")
        figure.supylabel("norm of the mean gradient", fontsize=9, color="#5b6472")
        return svg(figure)
