"""The content digest depends on a table's columns and values, and not on their storage."""

import itertools
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from starpo.schemas.datasets import DATASETS
from starpo.schemas.digest import ContentDigest, content_digest
from tests.examples import example, example_turns


def test_golden() -> None:
    """The digest may change only with the layout version; otherwise stored digests would no longer be comparable."""
    table = pa.table({"a": pa.array([1, None, 3], pa.int32()), "b": [["x", "yy"], [], ["z"]]})
    assert content_digest(table) == "e87660bfa2d5ba97e5f4ff6c60706c9fbe0e0e6e70f447b48f74a225b56587ad"


@settings(max_examples=30, deadline=None)
@given(cuts=st.lists(st.integers(0, 40), max_size=5))
def test_independent_of_batches(cuts: list[int]) -> None:
    table = example("turns")
    bounds = sorted({0, *cuts, table.num_rows})
    digest = ContentDigest(table.schema)
    for start, stop in itertools.pairwise(bounds):
        for batch in table.slice(start, stop - start).to_batches():
            digest.update(batch)
    assert digest.hexdigest() == content_digest(table)
    assert digest.num_rows == table.num_rows


@pytest.mark.parametrize("kind", DATASETS)
def test_independent_of_large_and_dictionary_types(kind: str) -> None:
    table = example(kind)

    def variant(type_: pa.DataType, large: bool) -> pa.DataType:
        if pa.types.is_list(type_):
            return pa.large_list(variant(type_.value_type, True)) if large else pa.list_(type_.value_type)
        if pa.types.is_string(type_):
            return pa.large_string() if large else pa.dictionary(pa.int16(), pa.string())
        return type_

    for large in (True, False):
        other = table.cast(pa.schema([(f.name, variant(f.type, large)) for f in table.schema]))
        assert other.schema != table.schema
        assert content_digest(other) == content_digest(table)


def test_independent_of_file_compression(tmp_path: Any) -> None:
    table = example_turns(10)
    for name, options in {"a": {"compression": "none", "row_group_size": 7}, "b": {"compression": "zstd"}}.items():
        pq.write_table(table, tmp_path / name, **options)
    assert content_digest(pq.read_table(tmp_path / "a")) == content_digest(pq.read_table(tmp_path / "b"))
    assert content_digest(pq.read_table(tmp_path / "a")) == content_digest(table)


def test_values_under_nulls_do_not_count() -> None:
    mask = np.array([False, True, False])
    one = pa.array(np.array([1, 2, 3]), mask=mask)
    two = pa.array(np.array([1, 9, 3]), mask=mask)
    assert content_digest(pa.table({"a": one})) == content_digest(pa.table({"a": two}))
    offsets, text = pa.py_buffer(np.array([0, 1, 3], np.int32)), pa.py_buffer(b"abb")
    hidden = pa.Array.from_buffers(pa.string(), 2, [pa.py_buffer(b"\x01"), offsets, text])
    assert hidden.to_pylist() == ["a", None]
    assert content_digest(pa.table({"a": hidden})) == content_digest(pa.table({"a": ["a", None]}))


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ({"a": [1, 2]}, {"a": [2, 1]}),
        ({"a": [1, 2]}, {"b": [1, 2]}),
        ({"a": [1, 2]}, {"a": [1, 2, 3]}),
        ({"a": [1, 2]}, {"a": [1.0, 2.0]}),
        ({"a": [0]}, {"a": pa.array([None], pa.int64())}),
        ({"a": ["ab", "c"]}, {"a": ["a", "bc"]}),
        ({"a": [""]}, {"a": pa.array([None], pa.string())}),
        ({"a": [[1], [2, 3]]}, {"a": [[1, 2], [3]]}),
        ({"a": [[1], []]}, {"a": [[1], None]}),
        ({"a": [[1, None]]}, {"a": [[1, 0]]}),
        ({"a": [0.0]}, {"a": [-0.0]}),
        ({"a": [True, False]}, {"a": [False, True]}),
        ({"a": [1], "b": [2]}, {"b": [2], "a": [1]}),
    ],
)
def test_any_other_value_gives_another_digest(one: dict[str, Any], two: dict[str, Any]) -> None:
    assert content_digest(pa.table(one)) != content_digest(pa.table(two))


values = st.lists(st.one_of(st.none(), st.lists(st.text(max_size=3), max_size=3)), max_size=6)


@settings(max_examples=100, deadline=None)
@given(one=values, two=values)
def test_equal_digest_means_equal_values(one: list[Any], two: list[Any]) -> None:
    tables = [pa.table({"a": pa.array(v, pa.list_(pa.string()))}) for v in (one, two)]
    assert (content_digest(tables[0]) == content_digest(tables[1])) == (one == two)


def test_unsupported_types_and_columns_are_rejected() -> None:
    with pytest.raises(TypeError, match="struct"):
        content_digest(pa.table({"a": [{"x": 1}]}))
    with pytest.raises(TypeError, match="expected the columns"):
        ContentDigest(pa.schema([("a", pa.int64())])).update(pa.record_batch({"b": [1]}))
    with pytest.raises(TypeError, match="schema"):
        content_digest([])
