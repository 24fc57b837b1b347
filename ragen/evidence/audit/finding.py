"""`Finding`: the result of an audit, for people and programs."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import pyarrow as pa

Severity = Literal["note", "warning", "fault"]
"""'note': numbers for a person to judge. 'warning': a threshold is exceeded and the run deserves a look. 'fault': the
stored data contradicts itself, so something is broken; only this makes `starpo audit` exit with code 1."""
_SEVERITIES = get_args(Severity)


@dataclass(frozen=True)
class Finding:
    """The result of one audit.

    Attributes:
        title: Subject of the audit.
        severity: Severity of the result.
        summary: Result in one or two sentences, with the numbers.
        meaning: How to read the table, and what to do about the result.
        table: The faults if there are any, otherwise the numbers.
        is_over_time: Whether rows are iterations (or iterations by category) rather than individual cases.
    """

    title: str
    severity: Severity
    summary: str
    meaning: str
    table: pa.Table
    is_over_time: bool


def first_to_last(table: pa.Table, column: str, label: str) -> str:
    """Describe how a column changes over time: `label 0.91 -> 0.12`; `label not measured` if there are no values.

    Args:
        table: One row per iteration, in order.
        column: Name of the column; null values are skipped.
        label: Name of the number in the text.
    """
    values = [value for value in table[column].to_pylist() if value is not None]
    if not values:
        return f"{label} not measured"
    return f"{label} {values[0]:.4g}" if len(values) == 1 else f"{label} {values[0]:.4g} -> {values[-1]:.4g}"


def serious_first(findings: Mapping[str, Finding]) -> list[tuple[str, Finding]]:
    """Sort findings by severity: faults, warnings, notes; ties keep their order."""
    return sorted(findings.items(), key=lambda item: _SEVERITIES.index(item[1].severity), reverse=True)


def verdict(findings: Mapping[str, Finding]) -> str:
    """Summarise the findings in one line."""
    faults, warnings = ([name for name, f in findings.items() if f.severity == s] for s in ("fault", "warning"))
    line = f"the stored data are inconsistent ({', '.join(faults)})" if faults else "the stored data are consistent"
    return f"{line}; to check: {', '.join(warnings)}" if warnings else line


def shown_rows(finding: Finding, limit: int) -> list[dict[str, Any]]:
    """Select at most `limit` rows, at least 1: the first ones or, for a table over time, all rows of evenly spaced
    iterations including the last; of the last one, those that fit if it alone has more.
    """
    if not finding.is_over_time or finding.table.num_rows <= limit:
        return finding.table.slice(0, limit).to_pylist()
    rows = finding.table.to_pylist()
    sizes = Counter((row["run"], row["iteration"]) for row in rows)
    times = list(sizes)
    shown = {times[-1]}
    for number in range(min(limit, len(times)), 1, -1):
        spread = {times[round(place * (len(times) - 1) / (number - 1))] for place in range(number)}
        if sum(sizes[time] for time in spread) <= limit:
            shown = spread
            break
    return [row for row in rows if (row["run"], row["iteration"]) in shown][:limit]
