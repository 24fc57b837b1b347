"""Data that break their contract are refused, and kept in quarantine with the reasons."""

import re
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from starpo.ragen.core.errors import DataError, StoreError
from starpo.ragen.store import Facts, Store
from starpo.ragen.store.remote.opening import open_location
from tests.examples import example


def places(store: Store, work: Facts) -> list[str]:
    """List the folders in quarantine, all of which belong to this work."""
    names = open_location(store.url).names("quarantine")
    assert all(re.fullmatch(rf"turns-{work.key}-[0-9a-f]{{16}}", name) for name in names)
    return [f"{store.url.rstrip('/')}/quarantine/{name}" for name in names]


def test_bad_data_are_quarantined_with_reasons(store: Store, work: Facts) -> None:
    with pytest.raises(DataError) as caught:
        store.put_table("turns", example("turns").slice(1), work)
    (place,) = places(store, work)
    assert f"are kept in {place}" in str(caught.value)
    assert "column 'turn'" in str(caught.value)
    assert "Traceback" not in str(caught.value)
    names = {name.rsplit("/", 1)[-1] for name in fsspec.core.url_to_fs(place)[0].ls(place, detail=False)}
    assert names == {"data.parquet", "failure_cases.parquet", "reason.txt"}
    assert not store.has("turns", work.key)


@pytest.mark.ci
def test_same_bad_data_are_quarantined_once(store: Store, work: Facts) -> None:
    for start, number in ((1, 1), (1, 1), (2, 2)):
        with pytest.raises(DataError) as caught:
            store.put_table("turns", example("turns").slice(start), work)
        assert len(places(store, work)) == number
        assert str(caught.value).rpartition(" ")[2] in places(store, work)


def test_incomplete_quarantine_is_rewritten(local: Store, work: Facts) -> None:
    for missing in ((), ("reason.txt",), ("reason.txt", "data.parquet")):
        for name in missing:
            Path(*places(local, work), name).unlink()
        with pytest.raises(DataError):
            local.put_table("turns", example("turns").slice(1), work)
        (folder,) = map(Path, places(local, work))
        assert {file.name for file in folder.iterdir()} == {"data.parquet", "failure_cases.parquet", "reason.txt"}


def test_failed_quarantine_still_rejects_data(local: Store, work: Facts, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "quarantine").write_text("no folder")
    with pytest.raises(DataError, match=r"column 'turn'(?s:.*)could not be kept in quarantine: cannot .*/quarantine/"):
        local.put_table("turns", example("turns").slice(1), work)


@pytest.mark.ci
def test_quarantine_keeps_values_schema_forbids(local: Store, work: Facts) -> None:
    table = example("turns")
    rows = table.to_pylist()
    rows[0]["turn"] = None
    rows[1]["response_ids"][0] = None
    bad = pa.Table.from_pylist(rows, schema=table.schema)
    with pytest.raises(DataError, match="is neither null nor NaN"):
        local.put_table("turns", bad, work)
    (folder,) = map(Path, places(local, work))
    assert pq.read_table(folder / "data.parquet").to_pylist() == rows
    assert pq.read_table(folder / "failure_cases.parquet")["row"].to_pylist()[0] == 0
    assert "is neither null nor NaN" in (folder / "reason.txt").read_text()


def test_other_columns_are_kept_too(local: Store, work: Facts) -> None:
    table = pa.table({"x": [1, 2], "turn": ["a", "b"]})
    with pytest.raises(DataError, match="'x' is not a column of this dataset"):
        local.put_table("turns", table, work)
    (folder,) = map(Path, places(local, work))
    assert pq.read_table(folder / "data.parquet").equals(table)


def test_batches_of_different_columns(local: Store, work: Facts) -> None:
    batches = [example("turns").to_batches()[0], pa.record_batch({"x": [1]})]
    with pytest.raises(StoreError, match="different columns or types; the first has trajectory_id"):
        local.put_table("turns", batches, work)
    assert not local.has("turns", work.key)


def test_nothing_is_left_in_tmp(local: Store, work: Facts, tmp_path: Path) -> None:
    with pytest.raises(DataError):
        local.put_table("turns", example("turns").slice(1), work)
    local.put_table("turns", example("turns"), work)
    assert list((tmp_path / "store" / "tmp").iterdir()) == []
