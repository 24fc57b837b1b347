"""Statistics in the footers of Parquet files, compared with the values.

Readers that filter rows (`starpo sql`, audits, the report) skip row groups by their footer statistics, which the
content digest, computed from rows, does not cover.

    files, rows -> footer_fault -> a sentence, or nothing
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq


def footer_fault(files: Iterable[Path], table: pa.Table) -> str:
    """Describe where the statistics in a dataset's files differ from its rows.

    Args:
        files: The Parquet files, in reading order.
        table: Their rows.

    Returns:
        A sentence that names the first column with a wrong minimum, maximum or number of nulls; empty if none is wrong.
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
                    return f"the footer of {file.name} has wrong statistics of the column {name}"
    return ""


def _is_true(statistics: Any, values: pa.ChunkedArray) -> bool:
    """Whether a column's statistics match its values; missing statistics do."""
    if statistics is None:
        return True
    is_list = pa.types.is_list(values.type)
    if statistics.has_null_count and not is_list and statistics.null_count != values.null_count:
        return False
    if not statistics.has_min_max:
        return True
    bounds = pc.min_max(pc.list_flatten(values) if is_list else values).as_py()
    return bool(bounds["min"] == statistics.min and bounds["max"] == statistics.max)
