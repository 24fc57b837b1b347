"""Gradients of groups by the std of their returns: what `learning.metrics.gradients` measured, and its figure."""

import re
from collections.abc import Mapping

import numpy as np

from starpo.ragen.core.pictures import COLOURS, new_figure, style, svg
from starpo.ragen.learning.metrics.table import Series

_MAX_PANELS = 6
_NAME = re.compile(r"gradients/bucket_(\d+)/(\w+)")


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
