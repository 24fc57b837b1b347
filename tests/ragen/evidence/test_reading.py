"""What is read of a run to be shown."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from starpo.ragen.core.errors import ArtifactDamagedError
from starpo.ragen.evidence.reading import hashed_metrics
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
    assert hashed_metrics(stored, KEY) == dict(zip(table["name"].to_pylist(), table["value"].to_pylist(), strict=True))


def test_shown_metrics_are_hashed(stored: Store, tmp_path: Path) -> None:
    other = example("metrics").slice(0, 1)
    with pytest.raises(ArtifactDamagedError):
        hashed_metrics(replace_file(stored, other, tmp_path, is_sealed=False), KEY)


@pytest.mark.parametrize("value", [pa.array([None], pa.float64()), pa.array(["high"]), None])
def test_unfit_metrics_are_damage(stored: Store, tmp_path: Path, value: pa.Array | None) -> None:
    other = pa.table({"name": ["loss"]} if value is None else {"name": ["loss"], "value": value})
    with pytest.raises(ArtifactDamagedError, match="its columns are not the dataset's"):
        hashed_metrics(replace_file(stored, other, tmp_path, is_sealed=True), KEY)
