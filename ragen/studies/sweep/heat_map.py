"""A sweep as one SVG: success as colour and number, a row a checkpoint, a column an environment and temperature.

SweepResult -> draw_sweep -> SVG

Where only one checkpoint was evaluated, a row is an environment and a column a temperature.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from starpo.ragen.core.templates import template
from starpo.ragen.studies.sweep.result import Score, SweepResult

_LOW, _HIGH = (0xF2, 0xF6, 0xFD), (0x16, 0x46, 0x9C)
_LEFT, _TOP, _ROW, _GAP = 232, 132, 30, 10
_COLUMN, _MIN_WIDTH = 92, 760
_SCALE_STEPS = 40


@dataclass(frozen=True)
class _Line:
    """A row or a column: what it is called, what it belongs to, and how its scores are found."""

    label: str
    group: str
    place: tuple[object, ...]


def draw_sweep(result: SweepResult) -> str:
    """Draw a result: every score with its interval on hovering; grey where nothing was measured.

    Returns:
        An SVG document.
    """
    scores = {(s.run, s.iteration, s.environment, s.temperature): s for s in result.scores}
    policies = list(dict.fromkeys((cell.run, cell.iteration) for cell in result.cells))
    if len(policies) == 1:
        (policy,) = policies
        what = f"of {policy[0]}, checkpoint {policy[1]}, by environment and temperature"
        rows = [_Line(name, "", (name,)) for name in result.environments]
        columns = [_Line(f"T = {t:g}", "", (t,)) for t in result.temperatures]
        found = {(r, c): scores.get((*policy, *r.place, *c.place)) for r in rows for c in columns}  # type: ignore[arg-type]
    else:
        what = "by checkpoint, environment and temperature"
        rows = [_Line(f"checkpoint {iteration}", run, (run, iteration)) for run, iteration in policies]
        columns = [_Line(f"T = {t:g}", name, (name, t)) for name in result.environments for t in result.temperatures]
        found = {(r, c): scores.get((*r.place, *c.place)) for r in rows for c in columns}  # type: ignore[arg-type]
    tops, left_of = _places(rows, _TOP, _ROW, 26), _places(columns, _LEFT, _COLUMN, _GAP)
    width = max(_MIN_WIDTH, left_of[-1] + _COLUMN + 24) if columns else _MIN_WIDTH
    height = (tops[-1] + _ROW if rows else _TOP) + 56
    picture = template("starpo.ragen.studies.sweep", "heat_map.svg.j2")
    seeds = len(result.sweep.seeds)
    return picture.render(
        title=f"Sweep {result.name}",
        note=f"success {what}; {seeds} seed{'s' * (seeds > 1)}; 95% intervals on hovering",
        width=width,
        height=height,
        left=_LEFT,
        row_height=_ROW,
        column_width=_COLUMN,
        row_labels=[{"text": row.label, "y": top + _ROW / 2 + 4} for row, top in zip(rows, tops, strict=True)],
        row_groups=[{"text": text, "y": tops[at] - 7} for at, text in _groups(rows)],
        column_labels=[{"text": c.label, "x": x + _COLUMN / 2} for c, x in zip(columns, left_of, strict=True)],
        column_groups=[{"text": text, "x": left_of[at]} for at, text in _groups(columns)],
        column_label_y=_TOP - (30 if any(row.group for row in rows) else 8),
        cells=[
            _square(found[row, column], row, column) | {"x": x, "y": top}
            for row, top in zip(rows, tops, strict=True)
            for column, x in zip(columns, left_of, strict=True)
        ],
        scale=[{"x": _LEFT + step * 5, "colour": _colour(step / (_SCALE_STEPS - 1))} for step in range(_SCALE_STEPS)],
        scale_y=height - 34,
        scale_end=_LEFT + 5 * _SCALE_STEPS,
    )


def _square(score: Score | None, row: _Line, column: _Line) -> dict[str, str]:
    name = ", ".join(filter(None, (row.group, row.label, column.group, column.label)))
    if score is None:
        return {"colour": "#e4e7ec", "ink": "#5b6472", "text": "–", "title": f"{name}: not measured"}
    return {
        "colour": _colour(score.success),
        "ink": "#ffffff" if score.success > 0.45 else "#1f2430",
        "text": f"{100 * score.success:.1f}%",
        "title": f"{name}: {score.success:.3f} [{score.low:.3f}, {score.high:.3f}], {score.num_episodes} episodes on "
        f"{score.num_prompts} prompts",
    }


def _colour(share: float) -> str:
    return "#" + "".join(f"{round(low + share * (high - low)):02x}" for low, high in zip(_LOW, _HIGH, strict=True))


def _places(lines: Sequence[_Line], start: int, size: int, gap: int) -> list[int]:
    """Where each line begins; `gap` between groups."""
    places, at = [], start
    for number, line in enumerate(lines):
        if number and line.group != lines[number - 1].group:
            at += gap
        places.append(at)
        at += size
    return places


def _groups(lines: Sequence[_Line]) -> list[tuple[int, str]]:
    """(number of the first line, name) of each group that has a name."""
    return [
        (number, line.group)
        for number, line in enumerate(lines)
        if line.group and (number == 0 or line.group != lines[number - 1].group)
    ]
