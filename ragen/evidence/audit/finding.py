"""`Finding`: what an audit found, for people and machines."""

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

Severity = Literal["note", "warning", "fault"]
"""'note': numbers, to be judged by people. 'warning': a threshold is passed and someone should look. 'fault': what is
stored contradicts itself, so that something is broken; only this makes `ragen audit` exit with code 1."""


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
