"""What is read of a run to be shown."""

from pathlib import Path
from threading import current_thread, main_thread

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from starpo.ragen.core.errors import ArtifactDamagedError
from starpo.ragen.evidence.reading import hashed_metrics, side_by_side
from starpo.ragen.store import Facts, Store
from starpo.schemas.manifest import FileEntry, Stage
from tests.examples import example

KEY = "a" * 32
FACTS = Facts(key=KEY, stage=Stage(name="update", version=1), settings={}, inputs={}, seed=0)


@pytest.fixture
def stored(tmp_path: Path) -> Store:
    store = Store(str(tmp_path / "store"))
    store.put_table("metrics", example("metrics"), FACTS)
    return store


def replace_file(store: Store, content: pa.Table, tmp_path: Path, *, is_sealed: bool) -> Store:
    """Replace the only file, as somebody who writes to the store; sealed, also its entry in the manifest."""
    folder = tmp_path / "store" / "metrics" / KEY
    pq.write_table(content, folder / "part-00000.parquet")
    if is_sealed:
        entry = FileEntry.of(folder / "part-00000.parquet", "part-00000.parquet")
        manifest = store.manifest("metrics", KEY).model_copy(update={"files": (entry,)}).sealed()
        (folder / "manifest.json").write_text(manifest.model_dump_json())
    return Store(store.url)


def test_shown_metrics_are_those_stored(stored: Store) -> None:
    table = example("metrics")
    shown = hashed_metrics(stored, stored.manifest("metrics", KEY))
    assert shown == dict(zip(table["name"].to_pylist(), table["value"].to_pylist(), strict=True))


def test_shown_metrics_are_hashed(stored: Store, tmp_path: Path) -> None:
    store = replace_file(stored, example("metrics").slice(0, 1), tmp_path, is_sealed=False)
    manifest = store.manifest("metrics", KEY)
    with pytest.raises(ArtifactDamagedError):
        hashed_metrics(store, manifest)


@pytest.mark.parametrize("value", [pa.array([None], pa.float64()), pa.array(["high"]), None])
def test_unfit_metrics_are_damage(stored: Store, tmp_path: Path, value: pa.Array | None) -> None:
    other = pa.table({"name": ["loss"]} if value is None else {"name": ["loss"], "value": value})
    store = replace_file(stored, other, tmp_path, is_sealed=True)
    manifest = store.manifest("metrics", KEY)
    with pytest.raises(ArtifactDamagedError, match="its columns are not the dataset's"):
        hashed_metrics(store, manifest)


@pytest.mark.parametrize("is_remote", [False, True])
def test_threads_read_remote_stores_alone(tmp_path: Path, is_remote: bool) -> None:
    store = Store("s3://bucket/prefix" if is_remote else str(tmp_path))
    read_by = [*side_by_side(store, lambda item: (item, current_thread()), range(100))]
    assert [item for item, _ in read_by] == list(range(100))
    assert all((thread is not main_thread()) == is_remote for _, thread in read_by)
