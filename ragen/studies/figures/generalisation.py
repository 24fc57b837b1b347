"""Generalisation as a heat map: every run on the panels of all runs, success as colour and number.

SweepResult of a matrix -> draw_sweep -> SVG
"""

from starpo.ragen.core.pictures import label, new_figure, style, svg
from starpo.ragen.studies.generalisation import entries
from starpo.ragen.studies.leaderboard import SweepResult

_DARK = 0.55
"""Success above which the text on a square is white."""
_FRAME = "#c2570c"


def draw_sweep(result: SweepResult) -> dict[str, str]:
    """Return file -> drawing: generalisation for a matrix sweep, else nothing."""
    return {"generalisation.svg": draw_generalisation(result)} if result.sweep.is_matrix else {}


def draw_generalisation(result: SweepResult) -> str:
    """Draw one row per run and one column per panel, with a frame around the environment that a run trains on."""
    found = entries(result)
    runs, panels = (list(dict.fromkeys(place[side] for place in found)) for side in (0, 1))
    rows = [f"{label(result.runs[run], 24)}\n{label(run, 48)}" for run in runs]
    columns = [label(panel, 24) for panel in panels]
    note = (
        "success in percent, first checkpoint \u2192 last; below, the "
        f"{result.confidence:.0%} interval of the last, which is the colour; framed: what the run trains on"
    )
    column_width = max(1.1, 0.2 + 0.085 * max(map(len, columns), default=0))  # inches at which names do not overlap
    with style():
        width, height = 4.2 + column_width * len(panels), 1.9 + 0.55 * len(runs)
        figure = new_figure(max(7.6, width), height, f"Sweep {result.name}", note)
        axes = figure.subplots()
        axes.set_facecolor("#e4e7ec")
        values = [
            [last.success if (last := found[run, panel].last) else float("nan") for panel in panels] for run in runs
        ]
        if values:
            axes.pcolormesh(values, cmap="Blues", vmin=0, vmax=1, edgecolors="white", linewidth=2)
        for (run, panel), entry in found.items():
            x, y = panels.index(panel), runs.index(run)
            ink = "white" if entry.last and entry.last.success > _DARK else "#1f2430"
            axes.text(x + 0.5, y + 0.5, entry.words, ha="center", va="center", color=ink, fontsize=8)
            if entry.is_own:
                corners = [(x + 0.03, y + 0.05), (x + 0.97, y + 0.05), (x + 0.97, y + 0.95), (x + 0.03, y + 0.95)]
                axes.plot(*zip(*corners, corners[0], strict=True), color=_FRAME, linewidth=1.6, gid="own")
        axes.set_xticks([at + 0.5 for at in range(len(columns))], columns)
        axes.set_yticks([at + 0.5 for at in range(len(rows))], rows)
        axes.set(xlabel="plays", ylabel="trains on")
        axes.xaxis.set_label_position("top")
        axes.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
        axes.spines[:].set_visible(False)
        axes.invert_yaxis()
        return svg(figure)
