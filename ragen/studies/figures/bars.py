"""The papers' tables as bar charts: success at the end, the paper's number beside ours.

AblationResult -> draw_bars -> SVG
"""

from starpo.ragen.core.pictures import COLOURS, label, new_figure, style, svg
from starpo.ragen.studies.ablation import AblationResult
from starpo.ragen.studies.figures.figure import Figure

_PAPER = "#b6bfcc"


def draw_bars(result: AblationResult) -> str:
    """Draw a result: one pair of bars per cell, a dot per seed. Cells without a finished run lack our bar."""
    finding = result.grid.finding
    numbers = finding.numbers if finding else {}
    order = list(numbers)  # the paper's order; cells that are not in the paper come last
    cells = sorted(result.cells, key=lambda cell: order.index(cell.label) if cell.label in order else len(order))
    places = range(len(cells))
    paper = f"grey: {finding.source}, another model; " if finding and numbers else ""
    note = (
        f"{paper}blue: success on {result.panel} at the end, mean over seeds with its {result.confidence:.0%} "
        "interval (dots: seeds)"
    )
    width = 0.38 if numbers else 0.6
    shift = width / 2 if numbers else 0.0
    with style():
        figure = new_figure(max(7.6, 1.6 + 0.95 * len(places)), 4.2, result.name, note)
        axes = figure.subplots()
        for place, cell in zip(places, cells, strict=True):
            if (number := numbers.get(cell.label)) is not None:
                axes.bar(place - shift, number, width, color=_PAPER)
                axes.text(place - shift, number, f"{100 * number:.1f}", ha="center", va="bottom", fontsize=8)
            panel = cell.panels.get(result.panel)
            if panel is None:
                axes.text(place + shift, 0, "not\nmeasured", ha="center", va="bottom", fontsize=8, color="#5b6472")
                continue
            axes.bar(place + shift, panel.last, width, color=COLOURS[0], alpha=0.85)
            top = panel.last
            if panel.last_low is not None and panel.last_high is not None:
                top = max(top, panel.last_high)
                ends = [panel.last_low, panel.last_high]
                axes.plot([place + shift] * 2, ends, color="#1f2430", linewidth=1.2, gid="interval")
            ends = [curve[max(curve)] for curve in panel.seed_curves.values()]
            axes.plot([place + shift] * len(ends), ends, ".", color="#1f2430", markersize=4, alpha=0.6)
            axes.text(place + shift, max(top, *ends), f"{100 * panel.last:.1f}", ha="center", va="bottom", fontsize=8)
        axes.set_xticks(list(places), [label(cell.label, 28) for cell in cells])
        axes.set(ylim=(0, 1.08), yticks=[0, 0.25, 0.5, 0.75, 1], ylabel="success")
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
        axes.set_axisbelow(True)
        axes.grid(axis="y")
        axes.tick_params(axis="x", length=0)
        return svg(figure)


BARS = Figure("bars.svg", draw_bars)
