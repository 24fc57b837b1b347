"""The content digest of a dataset: a digest of its logical values, not of the bytes that store them.

Equal values in equal order give equal digests, regardless of files, compression, batches, dictionary encodings or large
offsets. Column names, their order and their logical types are part of the content; metadata and nullability flags are
not. Floats are compared by their bits, except that all NaN are equal; so -0.0 differs from 0.0.

    batches -> ContentDigest.update -> hexdigest -> Manifest.content_digest
"""

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_LAYOUT = b"starpo-content-1"


class ContentDigest:
    """Incremental digest of a sequence of record batches of one schema."""

    def __init__(self, schema: pa.Schema) -> None:
        self._names = schema.names
        self._columns = [_ColumnDigest(field.type) for field in schema]
        self.num_rows = 0

    def update(self, batch: pa.RecordBatch) -> None:
        """Append rows. The boundaries between batches do not matter.

        Raises:
            TypeError: If the batch has other columns than the schema given at construction.
        """
        if batch.schema.names != self._names:
            raise TypeError(f"expected the columns {self._names}, found {batch.schema.names}")
        for digest, column in zip(self._columns, batch.columns, strict=True):
            digest.update(column)
        self.num_rows += batch.num_rows

    def hexdigest(self) -> str:
        """Return the SHA-256 over the row count and every column's name, type and streams; 64 hex digits."""
        total = hashlib.sha256(_LAYOUT)
        total.update(f"/{self.num_rows}/{len(self._columns)}".encode())
        for name, column in zip(self._names, self._columns, strict=True):
            total.update(f"/{len(name.encode())}:{name}/{column.type}/".encode())
            total.update(column.digest())
        return total.hexdigest()


def content_digest(data: pa.Table | Iterable[pa.RecordBatch], schema: pa.Schema | None = None) -> str:
    """Return the digest of a whole table, or of batches of `schema`; 64 hex digits.

    Raises:
        TypeError: If batches come without a schema, or a column has a type that no dataset uses (a struct, a map).
    """
    if isinstance(data, pa.Table):
        schema, data = data.schema, data.to_batches()
    if schema is None:
        raise TypeError("batches need their schema: an empty sequence has none")
    digest = ContentDigest(schema)
    for batch in data:
        digest.update(batch)
    return digest.hexdigest()


class _ColumnDigest:
    """Three streams per column: positions of nulls, lengths of values, values; a list also has those of its items.

    Each stream is a plain concatenation over the rows, so the boundaries between batches leave no trace.
    """

    def __init__(self, type_: pa.DataType) -> None:
        self.type = _logical_type(type_)
        self._nulls, self._lengths, self._values = hashlib.sha256(), hashlib.sha256(), hashlib.sha256()
        self._num_seen = 0
        self._items = _ColumnDigest(self.type.value_type) if pa.types.is_list(self.type) else None

    def update(self, array: pa.Array) -> None:
        array = _decoded(array, self.type)
        if array.null_count:
            positions = np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False)) + self._num_seen
            self._nulls.update(positions.astype("<i8").tobytes())
        self._num_seen += len(array)
        if self._items is not None:
            self._lengths.update(_little_endian(pc.fill_null(pc.list_value_length(array), 0)))
            self._items.update(array.flatten())
        elif pa.types.is_string(self.type) or pa.types.is_binary(self.type):
            self._lengths.update(_little_endian(pc.fill_null(pc.binary_length(array), 0)))
            self._values.update(_text_bytes(array.drop_null()))
        else:
            self._values.update(_little_endian(array.fill_null(False if pa.types.is_boolean(self.type) else 0)))

    def digest(self) -> bytes:
        streams = [self._nulls.digest(), self._lengths.digest(), self._values.digest()]
        if self._items is not None:
            streams.append(self._items.digest())
        return b"".join(streams)


def _logical_type(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(type_):
        return _logical_type(type_.value_type)
    if pa.types.is_large_string(type_) or pa.types.is_string_view(type_):
        return pa.string()
    if pa.types.is_large_binary(type_) or pa.types.is_binary_view(type_):
        return pa.binary()
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        return pa.list_(pa.field("item", _logical_type(type_.value_type)))
    is_flat = pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_boolean(type_)
    if not (is_flat or pa.types.is_string(type_) or pa.types.is_binary(type_)):
        raise TypeError(f"a column of type {type_} cannot be digested: no dataset has such a column")
    return type_


def _decoded(array: pa.Array, type_: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    return array if array.type.equals(type_) else array.cast(type_)


def _little_endian(array: pa.Array) -> bytes:
    values: np.ndarray[Any, Any] = array.to_numpy(zero_copy_only=False)
    if values.dtype.kind == "f":
        values = np.where(np.isnan(values), values.dtype.type(np.nan), values)
    return values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes()


def _text_bytes(array: pa.Array) -> memoryview | bytes:
    if len(array) == 0:
        return b""
    _, offsets, data = array.buffers()
    bounds = np.frombuffer(offsets, dtype=np.int32)[array.offset : array.offset + len(array) + 1]
    return memoryview(data)[int(bounds[0]) : int(bounds[-1])] if data is not None else b""
