"""Mutations that corrupt a table, column by column, as a bug, a bad edit or a broken import could.

table -> mutations -> (column, name, changed table)      mutations that change nothing are left out
"""

import math
import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from starpo.schemas.checks import SCORE_METRICS
from starpo.schemas.datasets import FINISH_REASONS, ORIGINS, STATUSES

Row = dict[str, Any]
Named = Iterator[tuple[str, Any]]

_ENUMS = {"status": STATUSES, "finish_reason": FINISH_REASONS, "origin": ORIGINS, "metric": SCORE_METRICS}


def mutations(table: pa.Table, rows: list[int]) -> Iterator[tuple[str, str, pa.Table]]:
    """Yield every mutation of every column: of single values in the given rows, and of the column as a whole."""
    for field in table.schema:
        values = table[field.name].to_pylist()
        texts = {_text(values)}
        for name, changed in _changed_columns(field, values, rows):
            if _text(changed) not in texts:
                texts.add(_text(changed))
                array = pa.chunked_array([pa.array(changed, type=_nullable(field.type))])
                index = table.schema.get_field_index(field.name)
                yield field.name, name, table.set_column(index, pa.field(field.name, array.type), array)


def _text(values: list[Any]) -> str:
    """Return text that is equal for equal values; -0.0 equals 0.0."""
    return re.sub(r"-0\.0(?=[],])", "0.0", repr(values))


def _changed_columns(field: pa.Field, values: list[Any], rows: list[int]) -> Iterator[tuple[str, list[Any]]]:
    for row in rows:
        for name, value in _others(field, values[row]):
            yield name, [*values[:row], value, *values[row + 1 :]]
        stranger = next((other for other in values[row + 1 :] + values[:row] if other != values[row]), values[row])
        yield "another row's", [*values[:row], stranger, *values[row + 1 :]]
    for row in rows:
        other = next((n for n, value in enumerate(values) if value != values[row]), row)
        swapped = list(values)
        swapped[row], swapped[other] = values[other], values[row]
        yield "swapped with another row's", swapped
    yield "rows shifted by one", values[-1:] + values[:-1]
    yield "rows reversed", values[::-1]
    yield "null throughout", [None] * len(values)
    yield "the first row's throughout", values[:1] * len(values)


def _others(field: pa.Field, value: Any) -> Named:
    yield "null", None
    if pa.types.is_list(field.type):
        yield from _other_lists(field.type.value_type, value or [])
    elif value is not None:
        yield from _other_values(field.type, value, _ENUMS.get(field.name, ()))


def _other_values(type_: pa.DataType, value: Any, allowed: tuple[str, ...] = ()) -> Named:
    if pa.types.is_boolean(type_):
        yield "flipped", not value
    elif pa.types.is_integer(type_):
        largest = 2 ** (type_.bit_width - 1) - 1
        others = {"0": 0, "1": 1, "-1": -1, "+1": value + 1, "one less": value - 1}
        others |= {"sign flipped": -value, "doubled": 2 * value, "largest": largest, "least": -largest}
        yield from ((name, max(-largest, min(largest, other))) for name, other in others.items())
    elif pa.types.is_floating(type_):
        for name, other in (("NaN", math.nan), ("inf", math.inf), ("-inf", -math.inf), ("0", 0.0), ("-1", -1.0)):
            yield name, other
        for name, other in (("+1", value + 1), ("sign flipped", -value), ("a thousandth more", value * 1.001 + 1e-4)):
            yield name, other
        yield "huge", 1e30
    else:
        for name, other in (("empty", ""), ("blank", " "), ("longer", value + "x"), ("shorter", value[:-1])):
            yield name, other
        yield "in capitals", value.upper()
        yield "control characters", "\x00\x1b"
        yield from (("another of the allowed", other) for other in allowed)


def _other_lists(type_: pa.DataType, value: list[Any]) -> Named:
    yield "empty", []
    yield "null inside", [*value[:-1], None]
    if value:
        yield "last dropped", value[:-1]
        yield "last twice", [*value, value[-1]]
        yield "reversed", value[::-1]
        for place, name in ((0, "first"), (len(value) - 1, "last")):
            for what, other in _other_values(type_, value[place]):
                yield f"{name} {what}", [*value[:place], other, *value[place + 1 :]]


def _nullable(type_: pa.DataType) -> pa.DataType:
    return pa.list_(type_.value_type) if pa.types.is_list(type_) else type_
