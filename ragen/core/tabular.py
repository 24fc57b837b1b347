"""Rows as CSV, with full numbers, and as LaTeX, with text as shown in a terminal."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from starpo.ragen.core.visible import visible

_SPECIAL = {
    "\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}  # fmt: skip
"""Characters that LaTeX reads as commands -> how they are written."""


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Write a line for each row, at least one, under the column names of the first; None is empty."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


def as_latex(rows: Sequence[Mapping[str, str]]) -> str:
    """Write rows, at least one, as a `tabular` with the rules of the package booktabs."""
    lines = [
        "% needs the package booktabs",
        r"\begin{tabular}{" + "l" * len(rows[0]) + "}",
        r"\toprule",
        _latex_line(rows[0]),
        r"\midrule",
        *(_latex_line(row.values()) for row in rows),
        r"\bottomrule",
        r"\end{tabular}",
        "",
    ]
    return "\n".join(lines)


def _latex_line(cells: Iterable[str]) -> str:
    escaped = ("".join(_SPECIAL.get(character, character) for character in visible(cell)) for cell in cells)
    return " & ".join(escaped) + r" \\"
