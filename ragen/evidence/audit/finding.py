"""`Finding`: what an audit found, for people and machines."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import pyarrow as pa

Severity = Literal["note", "warning", "fault"]
"""'note': numbers, to be judged by people. 'warning': a threshold is passed and someone should look. 'fault': what is
stored contradicts itself, so that something is broken; only this makes `ragen audit` exit with code 1."""
_SEVERITIES = get_args(Severity)


@dataclass(frozen=True)
class Finding:
    """The result of one audit.

    Attributes:
        title: What was looked at.
        severity: How serious it is.
        summary: What was found, in one or two sentences with the numbers.
        meaning: How to read the table, and what to do about it.
        table: The rows: the faults if there are any, otherwise the numbers.
        is_over_time: Is a row an iteration (of some kind of thing), rather than a case?
    """

    title: str
    severity: Severity
    summary: str
    meaning: str
    table: pa.Table
    is_over_time: bool


def first_to_last(table: pa.Table, column: str, label: str) -> str:
    """How a number of a table over time has moved: `label 0.91 -> 0.12`; `no label` where there is no row.

    Args:
        table: A row an iteration, in order.
        column: The number's; rows without it are passed over.
        label: What it is called.
    """
    values = [value for value in table[column].to_pylist() if value is not None]
    if not values:
        return f"no {label}"
    return f"{label} {values[0]:.4g}" if len(values) == 1 else f"{label} {values[0]:.4g} -> {values[-1]:.4g}"


def serious_first(found: Mapping[str, Finding]) -> list[tuple[str, Finding]]:
    """Findings by severity: faults, warnings, notes; among equals as they were asked for."""
    return sorted(found.items(), key=lambda item: _SEVERITIES.index(item[1].severity), reverse=True)


def verdict(found: Mapping[str, Finding]) -> str:
    """What the findings come to, in one line."""
    faults, warnings = ([name for name, f in found.items() if f.severity == s] for s in ("fault", "warning"))
    if faults:
        line = f"what is stored contradicts itself ({', '.join(faults)})"
    else:
        line = "what is stored does not contradict itself"
    return f"{line}; to look at: {', '.join(warnings)}" if warnings else line


def shown_rows(finding: Finding, limit: int) -> list[dict[str, Any]]:
    """The rows to show: the first, or, of a table over time, those of iterations evenly spread, the last included."""
    if not finding.is_over_time or finding.table.num_rows <= limit:
        return finding.table.slice(0, limit).to_pylist()
    rows = finding.table.to_pylist()
    times = list(dict.fromkeys((row["run"], row["iteration"]) for row in rows))
    num_shown = max(2, limit * len(times) // len(rows))
    shown = {times[round(place * (len(times) - 1) / (num_shown - 1))] for place in range(num_shown)}
    return [row for row in rows if (row["run"], row["iteration"]) in shown]
