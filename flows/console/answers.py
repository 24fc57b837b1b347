"""Answers of SQL questions and audits: as tables for people, as JSON, CSV or Parquet for machines."""

import csv
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa
import pyarrow.parquet as pq
from rich.text import Text

from flows.console.terminal import Console, as_json_value, cell, json_text, new_table, plain
from ragen.errors import ConfigError

MAX_ROWS = 100
"""Rows that a terminal shows."""


def print_answer(answer: pa.RecordBatchReader, console: Console, max_rows: int = MAX_ROWS) -> None:
    """The first rows of an answer as a table, and whether there are more."""
    rows: list[dict[str, Any]] = []
    for batch in answer:
        rows += batch.slice(0, max_rows + 1 - len(rows)).to_pylist()
        if len(rows) > max_rows:
            break
    print_rows(answer.schema.names, rows[:max_rows], console)
    if len(rows) > max_rows:
        console.print(f"the first {max_rows} rows; --json, --csv FILE and --parquet FILE give all of them")


def print_rows(names: list[str], rows: list[dict[str, Any]], console: Console) -> None:
    """Rows as a table, long text folded."""
    table = new_table()
    for name in names:
        is_number = any(
            isinstance(row[name], int | float | Decimal) and not isinstance(row[name], bool) for row in rows
        )
        header = plain(name.replace("_", " "))
        table.add_column(header, justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(cell(_cell(row[name])) for name in names))
    console.print(table)


def print_text(label: str, value: Any, console: Console) -> None:
    """One value below a table."""
    console.print(Text(f"{label}: ", style="dim").append_text(plain(_cell(value))))


def json_rows(batches: Iterator[pa.RecordBatch] | pa.RecordBatchReader) -> Iterator[dict[str, Any]]:
    """Rows in JSON's own types: see `as_json_value`."""
    for batch in batches:
        for row in batch.to_pylist():
            yield {name: as_json_value(value) for name, value in row.items()}


def print_json_rows(answer: pa.RecordBatchReader, stream: TextIO) -> None:
    """All rows as a JSON list of objects, written as they come."""
    separator = "["
    for row in json_rows(answer):
        stream.write(f"{separator}\n  {json_text(row)}")
        separator = ","
    stream.write("[]\n" if separator == "[" else "\n]\n")


def write_csv(answer: pa.RecordBatchReader, file: Path) -> int:
    """Write all rows as CSV with a header; lists and structures as JSON, null as nothing.

    Returns:
        Rows written.

    Raises:
        ConfigError: If the file cannot be written. It is then as it was before.
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
    """A new file to write, which takes the place of `file` once it is whole."""
    temporary = file.with_name(f".{file.name}.{uuid.uuid4().hex}")
    try:
        yield temporary
        temporary.replace(file)
    except OSError as error:
        raise ConfigError(f"cannot write {file}: {error.strerror or error}; name a file that you may write") from error
    finally:
        temporary.unlink(missing_ok=True)


def _cell(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.4g}"
        case list() | dict() | tuple():
            return json_text(as_json_value(value))
        case _:
            return str(as_json_value(value))


def _csv_cell(value: Any) -> Any:
    plain = as_json_value(value)
    if isinstance(value, float):
        return repr(value)
    return json_text(plain) if isinstance(plain, list | dict) else plain
