"""An ablation as one SVG: success over updates, one colour per cell, and differences from the base with intervals.

AblationResult -> draw_ablation -> SVG
"""

from starpo.ragen.core.pictures import COLOURS, draw_interval, label, new_figure, points_axis, style, success_axis, svg
from starpo.ragen.studies.ablation import AblationResult, CellResult

_BASE = "#1f2430"


def draw_ablation(result: AblationResult) -> str:
    """Draw a result: on the left every cell's mean over seeds, with thin lines for seeds; on the right the intervals.

    Returns:
        An SVG document. Cells without a finished run are labelled but not drawn.
    """
    rows = range(len(result.cells))
    note = (
        f"left: success on {result.panel}, mean over seeds (thin lines: runs); right: last evaluation minus the "
        f"base's, {result.confidence:.0%} paired bootstrap interval (dots: seeds)"
    )
    with style():
        figure = new_figure(11, max(4.2, 1.6 + 0.36 * len(rows)), f"Ablation {result.name}", note)
        curves, forest = figure.subplots(1, 2, width_ratios=(1.2, 1))
        success_axis(curves)
        points_axis(forest)
        reach = 0.02
        for row, cell in zip(rows, result.cells, strict=True):
            panel = cell.panels.get(result.panel)
            if panel is None:
                continue
            colour = _BASE if cell.is_base else COLOURS[(row - 1) % len(COLOURS)]
            dashes = "-" if row <= len(COLOURS) else "--"
            for curve in panel.seed_curves.values():
                points = list(curve), list(curve.values())
                curves.plot(*points, color=colour, linewidth=0.6, alpha=0.4, linestyle=dashes, gid="run")
            mean = list(panel.curve), list(panel.curve.values())
            curves.plot(*mean, color=colour, linewidth=2, linestyle=dashes, marker="o", markersize=3, gid="mean")
            if difference := panel.difference:
                seeds = list(difference.per_seed.values())
                reach = max(reach, *map(abs, (difference.low, difference.high, *seeds)))
                forest.plot(seeds, [row] * len(seeds), ".", color=colour, markersize=4, alpha=0.5)
                draw_interval(forest, row, difference.mean, (difference.low, difference.high), colour)
            elif cell.is_base:
                forest.plot([0], [row], "s", color=colour, markersize=6)
        forest.set(ylim=(max(1, len(rows)) - 0.5, -0.5), xlim=(-1.1 * reach, 1.1 * reach))
        forest.set_yticks(rows, [f"{label(cell.label)}\n{_note(cell, result.panel)}" for cell in result.cells])
        return svg(figure)


def _note(cell: CellResult, name: str) -> str:
    panel = cell.panels.get(name)
    notes = ["base"] if cell.is_base else []
    if panel:
        peak = "" if panel.peak is None else f", peak {panel.peak:.1%} at {panel.peak_iteration}"
        notes.append(f"last {panel.last:.1%}{peak}")
    notes += [f"{len(cell.errors)} of {len(cell.runs)} runs failed"] if cell.errors else []
    return "; ".join(notes)
