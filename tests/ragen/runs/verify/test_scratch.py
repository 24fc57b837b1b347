"""The scratch store reads the original, never writes into it, and lets recomputed artifacts replace lost ones."""

import json
import shutil
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from starpo.ragen.core.errors import ArtifactDamagedError, ArtifactMissingError
from starpo.ragen.runs.verify.scratch import Scratch
from starpo.ragen.store import Facts, Store
from starpo.ragen.store.artifacts.files import entries_of
from starpo.ragen.store.artifacts.keys import stage_key
from starpo.schemas.datasets import DATASETS
from starpo.schemas.manifest import FileEntry, Manifest, Stage
from tests.examples import example, put_folder

STAGE = Stage(name="rollout", version=1)


def put(store: Store, settings: dict[str, object]) -> str:
    key = stage_key(STAGE, settings, {}, 0)
    store.put_table("turns", example("turns"), Facts(key=key, stage=STAGE, settings=settings, inputs={}, seed=0))
    return key


def files(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


def test_scratch_leaves_original_untouched(store, tmp_path):
    key = put(store, {"a": 1})
    before = files(tmp_path)
    with Scratch(store) as scratch:
        stored = scratch.read("turns", key)
        assert stored.fault == ""
        assert stored.table.equals(example("turns"))
        scratch.provide("turns", key)
        assert scratch.store.read_table("turns", key).equals(example("turns"))
        place = Path(scratch.url)
        scratch.discard("turns", key)
        assert not scratch.has("turns", key)
    assert files(tmp_path) == before
    assert not place.exists()


def test_wrong_content_digest_is_a_fault(store, tmp_path):
    key = put(store, {"a": 1})
    file = tmp_path / "store" / "turns" / key / "manifest.json"
    forged = Manifest.model_validate_json(file.read_text()).model_copy(update={"content_digest": "0" * 64}).sealed()
    file.write_text(forged.model_dump_json())
    with Scratch(store) as scratch:
        assert "content digest" in scratch.read("turns", key).fault
        put(scratch.store, {"a": 1})
        assert "content digest" in scratch.read("turns", key).fault


@pytest.mark.parametrize("kind", DATASETS)
def test_footers_say_what_their_rows_have(store, kind):
    key = stage_key(STAGE, {}, {}, 0)
    store.put_table(kind, example(kind), Facts(key=key, stage=STAGE, settings={}, inputs={}, seed=0))
    with Scratch(store) as scratch:
        assert scratch.read(kind, key).fault == ""


def test_forged_footer_statistics_are_a_fault(store, tmp_path):
    """The statistics of one column are forged and the manifest matches the file; rows and digest are unchanged."""
    key = put(store, {"a": 1})
    folder = tmp_path / "store" / "turns" / key
    file = folder / "part-00000.parquet"
    data, size = file.read_bytes(), int.from_bytes(file.read_bytes()[-8:-4], "little")
    first = data[-8 - size :].index(b"sokoban") + len(data) - 8 - size  # in the footer
    file.write_bytes(data[:first] + data[first:].replace(b"sokoban", b"aokoban"))
    manifest = store.manifest("turns", key)
    forged = manifest.model_copy(update={"files": tuple(entries_of_parquet(folder))}).sealed()
    (folder / "manifest.json").write_text(forged.model_dump_json())
    assert store.read_table("turns", key).equals(example("turns"))
    assert ds.dataset(file).to_table(filter=ds.field("env") == "sokoban").num_rows == 0
    with Scratch(store) as scratch:
        assert "has wrong statistics of the column env" in scratch.read("turns", key).fault


def entries_of_parquet(folder: Path) -> list[FileEntry]:
    return [entry for entry in entries_of(folder) if entry.name.endswith(".parquet")]


def test_damage_is_named_without_quarantine(store, tmp_path):
    key = put(store, {"a": 1})
    file = tmp_path / "store" / "turns" / key / "part-00000.parquet"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    before = files(tmp_path)
    with Scratch(store) as scratch:
        assert f"turns/{key}" in scratch.read("turns", key).fault
        assert "sha256 differs" in scratch.read("turns", key).fault
        with pytest.raises(ArtifactDamagedError):
            scratch.provide("turns", key)
    assert files(tmp_path) == before


def test_wrong_key_is_a_fault(store, tmp_path):
    key = put(store, {"a": 1})
    other = stage_key(STAGE, {"a": 2}, {}, 0)
    folder = tmp_path / "store" / "turns"
    shutil.copytree(folder / key, folder / other)
    manifest = Manifest.model_validate_json((folder / other / "manifest.json").read_text())
    forged = manifest.model_copy(update={"key": other}).sealed()
    (folder / other / "manifest.json").write_text(json.dumps(forged.model_dump(mode="json")))
    with Scratch(store) as scratch:
        assert "another key than the work" in scratch.read("turns", other).fault


def test_computed_artifact_replaces_lost_until_release(store):
    with Scratch(store) as scratch:
        key = put(scratch.store, {"a": 1})
        scratch.keep_as_stand_in("turns", key)
        scratch.discard("turns", key)
        scratch.provide("turns", key)
        assert scratch.store.read_table("turns", key).num_rows == 40
        scratch.release("turns", key)
        with pytest.raises(ArtifactMissingError):
            scratch.provide("turns", key)


def test_dropped_artifact_has_manifest_without_fault(store, tmp_path):
    folder = tmp_path / "weights"
    folder.mkdir()
    (folder / "w.bin").write_bytes(b"1234")
    key = stage_key(STAGE, {}, {}, 0)
    put_folder(store, "checkpoint", str(folder), Facts(key=key, stage=STAGE, settings={}, inputs={}, seed=0))
    store.drop("checkpoint", key)
    with Scratch(store) as scratch:
        stored = scratch.read("checkpoint", key)
        assert stored.is_dropped
        assert stored.fault == ""
        assert stored.manifest.key == key
