"""Results of SQL queries and audits as JSON, CSV or Parquet, for machines."""

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa
import pyarrow.parquet as pq

from starpo.flows.console.terminal import as_json_value, json_text
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.core.outputs import whole_file


def json_rows(batches: Iterator[pa.RecordBatch] | pa.RecordBatchReader) -> Iterator[dict[str, Any]]:
    """Yield rows as JSON-compatible types, see `as_json_value`."""
    for batch in batches:
        for row in batch.to_pylist():
            yield {name: as_json_value(value) for name, value in row.items()}


def print_json_rows(answer: pa.RecordBatchReader, stream: TextIO) -> None:
    """Stream all rows as a JSON list of objects."""
    separator = "["
    for row in json_rows(answer):
        stream.write(f"{separator}\n  {json_text(row)}")
        separator = ","
    stream.write("[]\n" if separator == "[" else "\n]\n")


def write_csv(answer: pa.RecordBatchReader, file: Path) -> int:
    """Write all rows as CSV with a header; lists and structs as JSON, null as an empty field.

    Returns:
        Number of rows written.

    Raises:
        ConfigError: If the file cannot be written; an existing file is then left unchanged.
    """
    with _replacing(file) as temporary, temporary.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(answer.schema.names)
        num_rows = 0
        for batch in answer:
            for row in batch.to_pylist():
                writer.writerow([_csv_cell(value) for value in row.values()])
            num_rows += batch.num_rows
    return num_rows


def write_parquet(answer: pa.RecordBatchReader, file: Path) -> int:
    """Write all rows as Parquet; see `write_csv`."""
    with _replacing(file) as temporary, pq.ParquetWriter(temporary, answer.schema, compression="zstd") as writer:
        num_rows = 0
        for batch in answer:
            writer.write_batch(batch)
            num_rows += batch.num_rows
    return num_rows


@contextmanager
def _replacing(file: Path) -> Iterator[Path]:
    try:
        with whole_file(file) as unfinished:
            yield unfinished
    except OSError as error:
        raise ConfigError(f"cannot write {file}: {error.strerror or error}; name a file that you may write") from error


def _csv_cell(value: Any) -> Any:
    plain = as_json_value(value)
    if isinstance(value, float):
        return repr(value)
    return json_text(plain) if isinstance(plain, list | dict) else plain
