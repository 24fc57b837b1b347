"""Helpers that change the rows of tables."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

Rows = list[dict[str, Any]]


def rebuilt(table: pa.Table, change: Callable[[Rows], object]) -> pa.Table:
    """Return the table after a change to its rows."""
    rows = table.to_pylist()
    change(rows)
    return pa.Table.from_pylist(rows, schema=table.schema)


def setting(row: int, **values: Any) -> Callable[[Rows], object]:
    return lambda rows: rows[row].update(values)


def setting_where(test: Callable[[dict[str, Any]], bool], **values: Any) -> Callable[[Rows], object]:
    return lambda rows: [row.update(values) for row in rows if test(row)]
