"""A league of methods: every cell's difference from the base, at equal trajectories and at equal time.

AblationResult -> standings, best first -> table, draw_league -> SVG
"""

from starpo.ragen.core.pictures import COLOURS, draw_interval, label, new_figure, points_axis, style, svg
from starpo.ragen.studies.ablation import AblationResult, CellResult
from starpo.ragen.studies.result import Difference, Table, share


def standings(result: AblationResult) -> list[CellResult]:
    """Sort the cells by success at the end, best first; unfinished cells come last."""
    return sorted(result.cells, key=lambda cell: -cell.panels[result.panel].last if result.panel in cell.panels else 1)


def league_table(result: AblationResult) -> Table:
    """Return one row per cell, best first; the title names the cells significantly better than the base both ways."""
    cells = standings(result)
    better = [
        cell.label
        for cell in cells
        if not cell.is_base and all(d is not None and d.low > 0 for d in _differences(result, cell))
    ]
    verb = "beat" if len(better) > 1 else "beats"
    title = f"{', '.join(better) or 'none'} {verb} {result.cells[0].label} at equal trajectories and at equal time"
    return Table(title, [_row(result, cell) for cell in cells], ("cell",))


def draw_league(result: AblationResult) -> str:
    """Draw a result: one line per cell, best on top; filled at equal trajectories, hollow at equal time."""
    cells = [cell for cell in standings(result) if not cell.is_base]
    base = next(cell for cell in result.cells if cell.is_base).panels.get(result.panel)
    end = f", which ends at {100 * base.last:.1f}%" if base else ""
    note = (
        f"success on {result.panel} minus that of {result.cells[0].label}{end}; filled: at equal trajectories, hollow: "
        f"at equal time, each with its paired {result.confidence:.0%} interval"
    )
    with style():
        figure = new_figure(7.6, 1.5 + 0.3 * len(cells), result.name, note)
        axes = figure.subplots()
        points_axis(axes)
        for place, cell in enumerate(reversed(cells)):
            for at, difference in zip((0.12, -0.12), _differences(result, cell), strict=True):
                if difference is None:
                    continue
                is_apart = difference.low > 0 or difference.high < 0
                colour = COLOURS[2 if difference.mean > 0 else 1] if is_apart else "#8a93a3"
                ends = difference.low, difference.high
                draw_interval(axes, place + at, difference.mean, ends, colour, is_filled=at > 0)
            if result.panel not in cell.panels:
                axes.text(0, place, " did not finish", va="center", fontsize=8, color="#5b6472")
        axes.set_yticks(range(len(cells)), [label(cell.label, 28) for cell in reversed(cells)])
        axes.set(ylim=(-0.6, len(cells) - 0.4))
        axes.tick_params(axis="y", length=0)
        return svg(figure)


def _differences(result: AblationResult, cell: CellResult) -> tuple[Difference | None, Difference | None]:
    panel = cell.panels.get(result.panel)
    return panel.difference if panel else None, cell.at_equal_time.difference if cell.at_equal_time else None


def _row(result: AblationResult, cell: CellResult) -> dict[str, str]:
    panel, timed = cell.panels.get(result.panel), cell.at_equal_time
    end, then = _differences(result, cell)
    return {
        "cell": cell.label,
        "success": share(panel.last if panel else None),
        "difference": "base" if cell.is_base else str(end or ""),
        "time": "1.00" if cell.is_base else f"{timed.relative_seconds:.2f}" if timed else "",
        "at equal time": share(timed.success if timed else None),
        "difference then": str(then or ""),
    }
