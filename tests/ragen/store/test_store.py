"""Artifacts are stored once and read back unchanged; damage, invalid data and invalid locations are named."""

import json
import logging
import os
import shutil
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from starpo.ragen.core.errors import ArtifactDamagedError, ArtifactMissingError, ConfigError, DataError, StoreError
from starpo.ragen.store import Facts, Store
from starpo.ragen.store.artifacts import reading
from starpo.ragen.store.remote import committing
from starpo.schemas.datasets import DATASETS
from starpo.schemas.digest import content_digest
from tests.examples import example, example_turns, put_folder

KEY = "k" * 32


pytestmark = pytest.mark.usefixtures("nothing_verified_yet")


def forget() -> None:
    """Forget which files were verified, as in a new process."""
    reading._VERIFIED.clear()


@pytest.mark.ci
@pytest.mark.parametrize("kind", DATASETS)
def test_dataset_comes_back_as_it_was(store: Store, work: Facts, kind: str) -> None:
    table = example(kind)
    manifest = store.put_table(kind, table, replace(work, headline={"x": 0.5}, provenance={"seconds": 1.5}))
    assert store.has(kind, KEY)
    assert store.manifest(kind, KEY) == manifest
    assert manifest.is_intact
    assert manifest.num_rows == table.num_rows
    assert manifest.content_digest == content_digest(table)
    assert manifest.settings == {"a": [1, 2.5]}
    assert manifest.provenance["seconds"] == 1.5
    read = store.read_table(kind, KEY)
    assert read.equals(table)
    assert read.schema.equals(DATASETS[kind].schema, check_metadata=True)


def test_columns(store: Store, work: Facts) -> None:
    table = example_turns(3)
    store.put_table("turns", table, work)
    assert store.read_table("turns", KEY, ["turn", "group_id"]).equals(table.select(["turn", "group_id"]))
    with pytest.raises(ConfigError, match=r"no column 'trun'; it has: trajectory_id"):
        store.read_table("turns", KEY, ["trun"])


def test_stored_batches_equal_stored_table(store: Store, work: Facts) -> None:
    """Chunk size, nullable flags and missing metadata do not change the content."""
    table = example_turns(4)
    batches = [b.cast(b.schema.remove_metadata()) for b in table.to_batches(max_chunksize=7)]
    manifest = store.put_table("turns", iter(batches), work)
    assert manifest.content_digest == content_digest(table)
    assert store.read_table("turns", KEY).equals(table)


@pytest.mark.parametrize("data", [[], DATASETS["turns"].schema.empty_table()])
def test_empty_dataset(store: Store, work: Facts, data: Any) -> None:
    assert store.put_table("turns", data, work).num_rows == 0
    assert store.read_table("turns", KEY).equals(DATASETS["turns"].schema.empty_table())


def test_local_layout(local: Store, work: Facts, tmp_path: Path) -> None:
    local.put_table("rewards", example("rewards"), work)
    files = [
        path.relative_to(tmp_path / "store").as_posix() for path in (tmp_path / "store").rglob("*") if path.is_file()
    ]
    assert sorted(files) == [f"rewards/{KEY}/manifest.json", f"rewards/{KEY}/part-00000.parquet"]
    assert pq.read_table(tmp_path / "store" / "rewards" / KEY / "part-00000.parquet").num_rows == 40


def test_same_key_is_not_written_again(store: Store, work: Facts) -> None:
    first = store.put_table("turns", example_turns(1), work)

    def untouched() -> Any:
        raise AssertionError("the data of work that is done must not be read")
        yield

    assert store.put_table("turns", untouched(), work) == first


def test_folder_comes_back_as_it_was(store: Store, work: Facts, tmp_path: Path) -> None:
    source = tmp_path / "checkpoint"
    (source / "deep").mkdir(parents=True)
    (source / "model.safetensors").write_bytes(bytes(range(256)) * 1000)
    (source / "deep" / "config.json").write_text("{}")
    manifest = put_folder(store, "checkpoint", str(source), work)
    assert [entry.name for entry in manifest.files] == ["deep/config.json", "model.safetensors"]
    assert manifest.num_rows is None
    shutil.rmtree(source)
    folder = Path(store.local_folder("checkpoint", KEY))
    assert (folder / "model.safetensors").read_bytes() == bytes(range(256)) * 1000
    assert (folder / "deep" / "config.json").read_text() == "{}"


def test_folder_that_cannot_be_stored(store: Store, work: Facts, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="nothing to store"):
        store.take_folder("checkpoint", tmp_path / "absent", work)
    (tmp_path / "a").mkdir()
    with pytest.raises(StoreError, match="nothing to store"):
        store.take_folder("checkpoint", tmp_path / "a", work)
    (tmp_path / "a" / "link").symlink_to("/etc/hosts")
    with pytest.raises(StoreError, match="is a link"):
        store.take_folder("checkpoint", tmp_path / "a", work)
    with pytest.raises(StoreError, match="is a dataset"):
        store.take_folder("turns", tmp_path / "a", work)
    assert not store.has("checkpoint", KEY)


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".hidden", "a b", "x" * 129])
def test_unsafe_keys_and_kinds_are_rejected(store: Store, work: Facts, name: str) -> None:
    with pytest.raises(StoreError, match="cannot be a key"):
        store.put_table("turns", example("turns"), replace(work, key=name))
    with pytest.raises(StoreError, match="cannot be a kind"):
        store.has(name, KEY)


@pytest.mark.parametrize("kind", ["tmp", "runs", "quarantine"])
def test_reserved_names_are_refused(store: Store, work: Facts, tmp_path: Path, kind: str) -> None:
    with pytest.raises(StoreError, match="none of tmp, runs, quarantine"):
        store.take_folder(kind, tmp_path, work)


def test_missing_artifact(store: Store) -> None:
    assert not store.has("turns", KEY)
    with pytest.raises(ArtifactMissingError, match=rf"no artifact turns/{KEY} in the store .*\nRerun the flow"):
        store.read_table("turns", KEY)
    with pytest.raises(ConfigError, match="'trajectories' is not a dataset; known: turns, siblings, rewards"):
        store.read_table("trajectories", KEY)


def test_folder_without_manifest_is_replaced(local: Store, work: Facts, tmp_path: Path) -> None:
    incomplete = tmp_path / "store" / "turns" / KEY
    incomplete.mkdir(parents=True)
    (incomplete / "part-00000.parquet").write_bytes(b"half")
    assert not local.has("turns", KEY)
    local.put_table("turns", example("turns"), work)
    assert local.read_table("turns", KEY).equals(example("turns"))
    aside = list((tmp_path / "store" / "tmp").glob("incomplete-turns-*/part-00000.parquet"))
    assert [path.read_bytes() for path in aside] == [b"half"]


class TestDamage:
    """Artifacts in the store that are not what was written."""

    @pytest.fixture
    def stored(self, local: Store, work: Facts, tmp_path: Path) -> Path:
        local.put_table("turns", example("turns"), work)
        return tmp_path / "store" / "turns" / KEY

    def assert_damaged(self, local: Store, what: str) -> None:
        with pytest.raises(ArtifactDamagedError) as caught:
            local.read_table("turns", KEY)
        message = str(caught.value)
        assert what in message
        assert f"turns/{KEY}" in message
        assert "run the flow again" in message
        assert len(message.splitlines()) <= 3

    def test_truncated_parquet(self, local: Store, stored: Path) -> None:
        data = (stored / "part-00000.parquet").read_bytes()
        (stored / "part-00000.parquet").write_bytes(data[:-100])
        self.assert_damaged(local, f"has {len(data) - 100} bytes, expected {len(data)}")

    def test_flipped_bit(self, local: Store, stored: Path) -> None:
        data = bytearray((stored / "part-00000.parquet").read_bytes())
        data[len(data) // 2] ^= 1
        (stored / "part-00000.parquet").write_bytes(data)
        self.assert_damaged(local, "sha256 differs")

    @pytest.mark.parametrize(
        "edit",
        [
            {"seed": 8}, {"num_rows": 41}, {"key": "other"}, {"headline": {"success": 1.0}}, {"files": []},
            {"settings": {"a": [1, 2.25]}}, {"inputs": {"x": "y"}},
        ],
    )  # fmt: skip
    def test_edited_manifest(self, local: Store, stored: Path, edit: dict[str, Any]) -> None:
        text = json.loads((stored / "manifest.json").read_text())
        (stored / "manifest.json").write_text(json.dumps({**text, **edit}))
        self.assert_damaged(local, "changed after it was written")

    @pytest.mark.parametrize("text", ["", "{", "[]", '{"kind": "turns"}'])
    def test_unreadable_manifest(self, local: Store, stored: Path, text: str) -> None:
        (stored / "manifest.json").write_text(text)
        self.assert_damaged(local, "manifest.json cannot be read")

    def test_artifact_in_the_wrong_place(self, local: Store, stored: Path) -> None:
        shutil.copytree(stored, stored.with_name("other"))
        with pytest.raises(ArtifactDamagedError, match=f"its manifest belongs to turns/{KEY}"):
            local.read_table("turns", "other")

    def test_sealed_but_false_row_count(self, local: Store, stored: Path) -> None:
        manifest = local.manifest("turns", KEY).model_copy(update={"num_rows": 41}).sealed()
        (stored / "manifest.json").write_text(manifest.model_dump_json())
        self.assert_damaged(local, "it has 40 rows, its manifest says 41")

    def test_sealed_file_that_is_no_parquet(self, local: Store, stored: Path) -> None:
        (stored / "part-00000.parquet").write_bytes(b"not Parquet")
        self.reseal(local, stored)
        self.assert_damaged(local, "its Parquet cannot be read")

    def test_sealed_data_that_break_their_contract(self, local: Store, stored: Path, tmp_path: Path) -> None:
        table = example("turns")
        wrong = table.set_column(
            table.schema.get_field_index("turn"), table.schema.field("turn"), pa.array([9] * 40, pa.int32())
        )
        pq.write_table(wrong, stored / "part-00000.parquet")
        self.reseal(local, stored)
        for _ in range(2):
            with pytest.raises(DataError, match="column 'turn' counts 0, 1, 2"):
                local.read_table("turns", KEY, ["env"])
        (kept,) = (tmp_path / "store" / "quarantine").iterdir()
        assert pq.read_table(kept / "data.parquet").equals(wrong)
        for place in (kept.parent, tmp_path / "store" / "tmp"):  # as in a read-only store
            shutil.rmtree(place)
            place.write_text("no folder")
        with pytest.raises(DataError, match=r"column 'turn' counts(?s:.*)could not be kept in quarantine"):
            local.read_table("turns", KEY, ["env"])

    def test_other_version_of_the_schema(self, local: Store, stored: Path) -> None:
        manifest = local.manifest("turns", KEY).model_copy(update={"dataset_version": 99}).sealed()
        (stored / "manifest.json").write_text(manifest.model_dump_json())
        with pytest.raises(StoreError, match=r"version 99 of the dataset 'turns'.*knows version 2: read it with"):
            local.read_table("turns", KEY)

    def test_files_are_hashed_once_a_process(self, local: Store, stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        hashed: list[str] = []
        entry = reading.entry_of
        monkeypatch.setattr(reading, "entry_of", lambda file, folder: hashed.append(file.name) or entry(file, folder))
        local.read_table("turns", KEY)
        assert hashed == [], "it was hashed as it was written"
        forget()
        local.read_table("turns", KEY)
        Store(local.url).read_table("turns", KEY)
        assert hashed == ["part-00000.parquet"]
        os.utime(stored / "part-00000.parquet")
        local.read_table("turns", KEY)
        assert hashed == ["part-00000.parquet"] * 2, "and again when it was touched"

    @staticmethod
    def reseal(local: Store, stored: Path) -> None:
        file = reading.entry_of(stored / "part-00000.parquet", stored)
        manifest = local.manifest("turns", KEY).model_copy(update={"files": (file,)}).sealed()
        (stored / "manifest.json").write_text(manifest.model_dump_json())

    def test_manifest_of_a_newer_release(self, local: Store, stored: Path) -> None:
        manifest = local.manifest("turns", KEY).model_copy(update={"format_version": 99}).sealed()
        (stored / "manifest.json").write_text(manifest.model_dump_json())
        with pytest.raises(StoreError, match="newer release"):
            local.manifest("turns", KEY)


def test_remote_copy_is_cached_and_repaired(work: Facts, cache: Path) -> None:
    store = Store("memory://bucket/remote-copy")
    store.put_table("turns", example("turns"), work)
    folder = Path(store.local_folder("turns", KEY))
    assert folder.parent == cache
    assert [path.name for path in folder.iterdir()] == ["part-00000.parquet"]
    assert list(cache.iterdir()) == [folder]
    (folder / "part-00000.parquet").write_bytes(b"broken copy")
    forget()
    assert store.read_table("turns", KEY).equals(example("turns"))


def test_remote_damage_is_noticed(work: Facts, cache: Path) -> None:
    store = Store("memory://bucket/remote-damage")
    manifest = store.put_table("turns", example("turns"), work)
    place = f"/bucket/remote-damage/turns/{KEY}/{manifest.files[0].path}"
    shutil.rmtree(cache)  # it holds a copy of what was stored
    memory = fsspec.filesystem("memory")
    data = memory.cat_file(place)
    memory.pipe_file(place, data[:-1])
    with pytest.raises(ArtifactDamagedError, match="bytes"):
        store.read_table("turns", KEY)
    memory.rm_file(place)
    with pytest.raises(ArtifactDamagedError, match="is missing"):
        store.read_table("turns", KEY)
    assert not cache.exists() or list(cache.iterdir()) == []


def test_copied_manifest_outlasts_processes(work: Facts, cache: Path) -> None:
    url, memory = f"memory://bucket/{uuid.uuid4().hex}", fsspec.filesystem("memory")
    manifest = Store(url).put_table("turns", example("turns"), work)
    place = f"{url.removeprefix('memory:/')}/turns/{KEY}/manifest.json"
    assert Store(url).copied_manifest("turns", KEY) == manifest
    again = manifest.model_copy(update={"seed": 9}).sealed()
    memory.pipe_file(place, again.model_dump_json().encode())
    assert Store(url).copied_manifest("turns", KEY) == manifest  # not fetched again
    (copy,) = (folder / "content" for folder in cache.iterdir() if (folder / "content").exists())
    copy.write_bytes(b"{broken")
    assert Store(url).copied_manifest("turns", KEY) == again  # a damaged copy is fetched again
    assert Store(url).copied_manifest("turns", KEY) == again


def test_unwritable_copies_are_no_obstacle(work: Facts, cache: Path) -> None:
    url = f"memory://bucket/{uuid.uuid4().hex}"
    manifest = Store(url).put_table("turns", example("turns"), work)
    shutil.rmtree(cache, ignore_errors=True)
    cache.parent.mkdir(exist_ok=True)
    cache.write_bytes(b"a file where the folder should be")
    assert Store(url).copied_manifest("turns", KEY) == manifest


class TestPlaces:
    """Addresses of stores, valid and invalid."""

    def test_store_under_a_file(self, tmp_path: Path, work: Facts) -> None:
        (tmp_path / "file").write_text("")
        store = Store(str(tmp_path / "file" / "store"))
        with pytest.raises(StoreError, match=r"cannot list .*\nCheck that .* is a folder that you may read and write"):
            store.put_table("turns", example("turns"), work)

    def test_disk_full(self, local: Store, work: Facts, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(path: Path) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(committing, "sync", full)
        with pytest.raises(StoreError, match=r"The disk is full, .* are left: free some space"):
            local.put_table("turns", example("turns"), work)
        assert not local.has("turns", KEY)

    @pytest.mark.parametrize(
        "url", ["s3://key:secret@bucket/x", "s3://key@bucket", "https://u:secret@host/x", "s3://bucket/x?key=secret"]
    )
    def test_credentials_in_address_are_rejected(self, url: str) -> None:
        with pytest.raises(StoreError, match="carries credentials, which would end up in logs") as caught:
            Store(url)
        assert "secret" not in str(caught.value)
        assert "key" not in str(caught.value).split("carries")[0]

    def test_home_and_relative_folders(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: Facts) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        for url, folder in {"here": "here", "~/there": "home/there"}.items():
            Store(url).put_table("metrics", example("metrics"), work)
            assert (tmp_path / folder / "metrics" / KEY / "manifest.json").exists()

    def test_address_of_no_known_kind(self) -> None:
        with pytest.raises(StoreError, match="is not supported"):
            Store("nowhere://x")
        with pytest.raises(StoreError, match="names no bucket"):
            Store("s3://")


def test_conflicting_results_are_logged(
    work: Facts, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """Two writers start before either has finished: the first to finish wins, and the difference is logged."""
    store = Store(str(tmp_path / "race"))
    first = store.put_table("turns", example_turns(1), work)
    monkeypatch.setattr(reading.StoredArtifacts, "has", lambda *_: False)
    with caplog.at_level(logging.WARNING):
        assert store.put_table("turns", example_turns(2), work) == first
    assert "two results" in caplog.text
    assert store.read_table("turns", KEY).num_rows == 20


def test_provenance_has_no_secrets(local: Store, work: Facts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush-hush")
    monkeypatch.setenv("WANDB_API_KEY", "hush-hush-2")
    manifest = local.put_table("metrics", example("metrics"), work)
    assert "hush" not in manifest.model_dump_json()
    assert {"written_at", "versions", "code", "hardware", "threads"} == set(manifest.provenance)
    assert manifest.provenance["versions"]["pyarrow"] == pa.__version__
