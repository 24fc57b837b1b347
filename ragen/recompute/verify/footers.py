"""What the footers of Parquet files say of the values in them, against these values.

Readers that filter rows (`ragen sql`, audits, the report) leave out whatever a footer says holds none of them, and the
content digest, which is of rows, does not see footers.

    files, rows -> footer_fault -> a sentence, or nothing
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq


def footer_fault(files: Iterable[Path], table: pa.Table) -> str:
    """Say where the statistics in a dataset's files are not those of its rows.

    Args:
        files: The Parquet files, in reading order.
        table: Their rows.

    Returns:
        The first column whose smallest or largest value, or whose number of nulls, is another; empty: there is none.
    """
    first = 0
    for file in files:
        footer = pq.read_metadata(file)
        for number in range(footer.num_row_groups):
            group = footer.row_group(number)
            rows = table.slice(first, group.num_rows)
            first += group.num_rows
            for place in range(group.num_columns):
                column = group.column(place)
                name = column.path_in_schema.partition(".")[0]
                try:
                    is_true = _is_true(column.statistics, rows[name])
                except (ValueError, KeyError) as error:
                    return f"the footer of {file.name} cannot be read ({error})"
                if not is_true:
                    return f"the footer of {file.name} says other statistics of the column {name} than its values have"
    return ""


def _is_true(told: Any, values: pa.ChunkedArray) -> bool:
    """Are a column's statistics those of its values? A footer need not have any."""
    if told is None:
        return True
    is_list = pa.types.is_list(values.type)
    if told.has_null_count and not is_list and told.null_count != values.null_count:
        return False
    if not told.has_min_max:
        return True
    found = pc.min_max(pc.list_flatten(values) if is_list else values).as_py()
    return bool(found["min"] == told.min and found["max"] == told.max)
