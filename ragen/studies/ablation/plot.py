"""An ablation as one SVG: success over updates, a colour a cell, and the differences to the base with their intervals.

AblationResult -> draw_ablation -> SVG
"""

from collections.abc import Mapping

from starpo.ragen.core.templates import template
from starpo.ragen.studies.ablation.result import AblationResult, CellResult

_COLOURS = ("#5b6472", "#2b63c9", "#c2570c", "#0f8a6b", "#8b3fb0", "#b1890c", "#c0264b", "#1797a6", "#7a5230")
_WIDTH = 1080
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 560, 84, 380
_ROW = 34
_LABELS, _ZERO_LEFT, _ZERO_RIGHT = 596, 810, 1044
_TICKS = 4


def draw_ablation(result: AblationResult) -> str:
    """Draw a result: on the left the mean over seeds of every cell, thin lines the seeds; on the right the intervals.

    Returns:
        An SVG document. Cells of which no run came to its end are named and not drawn.
    """
    last = max((at for cell in result.cells for at in _curve(result, cell)), default=0) or 1
    bottom = max(_BOTTOM, _TOP + _ROW * len(result.cells))
    reach = _reach(result)

    def place(updates: float, success: float) -> str:
        return f"{_LEFT + updates / last * (_RIGHT - _LEFT):.1f},{bottom - success * (bottom - _TOP):.1f}"

    def across(difference: float) -> float:
        return round(_ZERO_LEFT + (difference + reach) / (2 * reach) * (_ZERO_RIGHT - _ZERO_LEFT), 1)

    cells = []
    for number, cell in enumerate(result.cells):
        panel = cell.panels.get(result.panel)
        difference = panel.difference if panel else None
        cells.append(
            {
                "label": cell.label,
                "colour": _COLOURS[number % len(_COLOURS)],
                "dashes": "" if number < len(_COLOURS) else "6 4",
                "y": _TOP + _ROW * number + _ROW / 2,
                "note": _note(cell, result.panel),
                "mean": _line(panel.curve if panel else {}, place),
                "seeds": [
                    {"run": cell.runs[seed], "line": _line(curve, place)} for seed, curve in panel.seed_curves.items()
                ]
                if panel
                else [],
                "mark": across(difference.mean) if difference else None,
                "low": across(max(-reach, difference.low)) if difference else None,
                "high": across(min(reach, difference.high)) if difference else None,
                "per_seed": [across(value) for value in difference.per_seed.values()] if difference else [],
            }
        )
    picture = template("starpo.ragen.studies.ablation", "ablation.svg.j2")
    return picture.render(
        title=f"Ablation {result.name}",
        note=f"success on the panel {result.panel}: mean over seeds, thin lines the single runs",
        difference_note=f"last evaluation, {result.confidence:.0%} interval (paired bootstrap); small dots are seeds",
        width=_WIDTH, height=bottom + 52, left=_LEFT, right=_RIGHT, top=_TOP, bottom=bottom,
        labels=_LABELS, zero=across(0.0), forest_left=_ZERO_LEFT, forest_right=_ZERO_RIGHT,
        y_ticks=[
            {"at": bottom - t / _TICKS * (bottom - _TOP), "label": f"{100 * t // _TICKS}%"} for t in range(_TICKS + 1)
        ],
        x_ticks=[
            {"at": _LEFT + t / _TICKS * (_RIGHT - _LEFT), "label": f"{last * t / _TICKS:g}"} for t in range(_TICKS + 1)
        ],
        d_ticks=[
            {"at": across(reach * part), "label": f"{100 * reach * part:+.3g}" if part else "0"}
            for part in (-1, -0.5, 0, 0.5, 1)
        ],
        cells=cells,
    )  # fmt: skip


def _curve(result: AblationResult, cell: CellResult) -> Mapping[int, float]:
    panel = cell.panels.get(result.panel)
    return panel.curve if panel else {}


def _line(curve: Mapping[int, float], place: object) -> str:
    return " ".join(place(at, success) for at, success in curve.items())  # type: ignore[operator]


def _reach(result: AblationResult) -> float:
    """Half the width of the axis of differences: the smallest round number that holds every interval and seed."""
    found = [0.01]
    for cell in result.cells:
        if (panel := cell.panels.get(result.panel)) and panel.difference:
            found += map(abs, (panel.difference.low, panel.difference.high, *panel.difference.per_seed.values()))
    return next(step for step in (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0) if max(found) <= step)


def _note(cell: CellResult, name: str) -> str:
    panel = cell.panels.get(name)
    said = ["base"] if cell.is_base else []
    said += [f"last {panel.last:.1%}, peak {panel.peak:.1%} at {panel.peak_iteration}"] if panel else []
    said += [f"{len(cell.errors)} of {len(cell.runs)} runs failed"] if cell.errors else []
    return "; ".join(said)
