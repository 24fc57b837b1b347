"""Parquet files of a dataset: written batch by batch, validated and digested on the way; read back the same way.

rows -> batches of bounded size -> write_dataset -> part-00000.parquet      part-*.parquet -> stored_batches -> rows
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from starpo.ragen.core.errors import ConfigError, StoreError
from starpo.ragen.store.remote.ranges import RangeFile
from starpo.schemas.datasets import DATASETS
from starpo.schemas.digest import ContentDigest
from starpo.schemas.violation import ContractViolation

PART_NAME = "part-00000.parquet"
"""The file of a dataset that this library writes; readers take every file that the manifest lists."""

MAX_BATCH_ROWS = 131_072
MAX_BATCH_BYTES = 64 * 2**20
"""Limits of a batch, which becomes one row group; it ends at whichever is reached first."""


@dataclass(frozen=True)
class WrittenDataset:
    """Result of writing a dataset: number of rows, digest of their content (64 hex digits), and the contract violation,
    if any."""

    num_rows: int
    content_digest: str
    violation: ContractViolation | None


def write_dataset(data: pa.Table | Iterable[pa.RecordBatch], kind: str, file: Path) -> WrittenDataset:
    """Write all rows, valid or not, to one Parquet file.

    Invalid data are also written, completely and with their own columns, so that they can be inspected.

    Memory: one batch (at most 64 MiB, or one row) and what `Validator` keeps per row.

    Args:
        data: The rows.
        kind: Dataset kind.
        file: The file to write.
    """
    from starpo.schemas.validate import Validator

    expected = DATASETS[kind].schema
    batches = bounded(data.to_batches() if isinstance(data, pa.Table) else data)
    first = next(batches, None)
    if first is None:
        schema = data.schema if isinstance(data, pa.Table) else expected
        first = pa.RecordBatch.from_pylist([], schema=schema)
    validator, digest = Validator(kind), ContentDigest(first.schema)
    schema = _writable(first.schema.with_metadata(expected.metadata))
    with pq.ParquetWriter(file, schema, compression="zstd", use_dictionary=_repetitive(schema)) as writer:
        for batch in itertools.chain([first], batches):
            if batch.schema.names != schema.names or not _writable(batch.schema).equals(schema):
                raise StoreError(
                    f"the batches of a dataset '{kind}' have different columns or types; the first has "
                    f"{', '.join(schema.names)}. Give all of them the schema schemas.datasets.DATASETS['{kind}'].schema"
                )
            validator.check(batch)
            digest.update(batch)
            writer.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
    try:
        validator.finish()
    except ContractViolation as violation:
        return WrittenDataset(digest.num_rows, digest.hexdigest(), violation)
    return WrittenDataset(digest.num_rows, digest.hexdigest(), None)


def as_declared(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the batch's columns with the dataset's schema and nullability flags, which the files do not contain."""
    return pa.RecordBatch.from_arrays([batch.column(name) for name in schema.names], schema=schema)


def stored_batches(files: Sequence[Path | RangeFile]) -> Iterator[pa.RecordBatch]:
    """Yield the rows as they are in the files, whatever their columns."""
    for file in files:
        with pq.ParquetFile(file) as parquet:
            yield from parquet.iter_batches(MAX_BATCH_ROWS)


def columns_schema(kind: str, columns: Sequence[str] | None = None) -> pa.Schema:
    """Return the schema of a dataset, or of some of its columns in this order.

    Raises:
        ConfigError: If it has no such column.
    """
    schema = DATASETS[kind].schema
    if columns is None:
        return schema
    unknown = [name for name in columns if name not in schema.names]
    if unknown:
        known = ", ".join(schema.names)
        raise ConfigError(f"the dataset '{kind}' has no column '{unknown[0]}'; it has: {known}")
    return pa.schema([schema.field(name) for name in columns], metadata=schema.metadata)


def num_rows(files: Sequence[Path]) -> int:
    """Return the number of rows of Parquet files, from their footers."""
    return sum(pq.read_metadata(file).num_rows for file in files)


def bounded(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in batches that are neither tiny nor larger than the limits of this module."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        step = max(1, min(MAX_BATCH_ROWS, MAX_BATCH_BYTES * batch.num_rows // max(batch.nbytes, 1)))
        for start in range(0, batch.num_rows, step):
            piece = batch.slice(start, step)
            if waiting and (
                rows + piece.num_rows > MAX_BATCH_ROWS
                or size + piece.nbytes > MAX_BATCH_BYTES
                or piece.schema != waiting[0].schema
            ):
                yield _joined(waiting)
                waiting, rows, size = [], 0, 0
            waiting.append(piece)
            rows, size = rows + piece.num_rows, size + piece.nbytes
    if waiting:
        yield _joined(waiting)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _writable(schema: pa.Schema) -> pa.Schema:
    """Return the schema with all columns and items nullable.

    Parquet rejects nulls in columns declared without, and invalid data must be writable to be inspected; readers
    restore the dataset's own flags.
    """
    types = [pa.list_(field.type.value_type) if pa.types.is_list(field.type) else field.type for field in schema]
    fields = [pa.field(f.name, type_, metadata=f.metadata) for f, type_ in zip(schema, types, strict=True)]
    return pa.schema(fields, metadata=schema.metadata)


def _repetitive(schema: pa.Schema) -> list[str]:
    """Return the Parquet paths of the columns worth dictionary-encoding: all but lists of floats, whose values hardly
    repeat."""
    lists = {f.name for f in schema if pa.types.is_list(f.type)}
    dense = {name for name in lists if pa.types.is_floating(schema.field(name).type.value_type)}
    return [f"{name}.list.element" if name in lists else name for name in schema.names if name not in dense]
