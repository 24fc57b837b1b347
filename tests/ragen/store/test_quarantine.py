"""Data that break their contract are kept, named and refused."""

from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from starpo.ragen.core.errors import DataError, StoreError
from starpo.ragen.store import Store
from starpo.schemas.examples import example


def test_bad_data_are_kept_whole_with_the_reasons(store: Store, work: dict[str, Any]) -> None:
    bad = example("turns").slice(1)
    for number in (0, 1):
        with pytest.raises(DataError) as caught:
            store.put_table("turns", bad, **work)
        place = f"{store.url.rstrip('/')}/quarantine/turns-{work['key']}-{number}"
        assert place in str(caught.value)
        assert "column 'turn'" in str(caught.value)
        assert "Traceback" not in str(caught.value)
        names = {name.rsplit("/", 1)[-1] for name in fsspec.core.url_to_fs(place)[0].ls(place, detail=False)}
        assert names == {"data.parquet", "failure_cases.parquet", "reason.txt"}
    assert not store.has("turns", work["key"])


def test_every_value_is_kept_even_what_the_schema_forbids(local: Store, work: dict[str, Any], tmp_path: Path) -> None:
    table = example("turns")
    rows = table.to_pylist()
    rows[0]["turn"] = None
    rows[1]["response_ids"][0] = None
    bad = pa.Table.from_pylist(rows, schema=table.schema)
    with pytest.raises(DataError, match="never null"):
        local.put_table("turns", bad, **work)
    folder = tmp_path / "store" / "quarantine" / f"turns-{work['key']}-0"
    assert pq.read_table(folder / "data.parquet").to_pylist() == rows
    assert pq.read_table(folder / "failure_cases.parquet")["row"].to_pylist()[0] == 0
    assert "never null" in (folder / "reason.txt").read_text()


def test_other_columns_are_kept_too(local: Store, work: dict[str, Any], tmp_path: Path) -> None:
    table = pa.table({"x": [1, 2], "turn": ["a", "b"]})
    with pytest.raises(DataError, match="'x' is not a column of this dataset"):
        local.put_table("turns", table, **work)
    assert pq.read_table(tmp_path / "store" / "quarantine" / f"turns-{work['key']}-0" / "data.parquet").equals(table)


def test_batches_of_different_columns(local: Store, work: dict[str, Any]) -> None:
    batches = [example("turns").to_batches()[0], pa.record_batch({"x": [1]})]
    with pytest.raises(StoreError, match="different columns or types; the first has trajectory_id"):
        local.put_table("turns", batches, **work)
    assert not local.has("turns", work["key"])


def test_nothing_is_left_in_tmp(local: Store, work: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(DataError):
        local.put_table("turns", example("turns").slice(1), **work)
    local.put_table("turns", example("turns"), **work)
    assert list((tmp_path / "store" / "tmp").iterdir()) == []
