"""Dropped artifacts: the manifest is kept, the files are deleted, a kill does no harm, and they can be stored again."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from starpo.ragen.core.errors import ArtifactDamagedError, ArtifactMissingError, DerivationError
from starpo.ragen.store import Facts, Store
from starpo.ragen.store.artifacts.files import entries_of
from tests.examples import put_folder

KEY = "k" * 32


@pytest.fixture
def files(tmp_path: Path) -> str:
    folder = tmp_path / "policy"
    (folder / "deep").mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "deep" / "weights.safetensors").write_bytes(b"weights")
    return str(folder)


def test_drop_keeps_manifest_deletes_files(store: Store, files: str, work: Facts) -> None:
    manifest = put_folder(store, "checkpoint", files, work)
    assert store.dropped("checkpoint", KEY) is None
    assert store.drop("checkpoint", KEY) == manifest
    assert not store.has("checkpoint", KEY)
    assert store.was_made("checkpoint", KEY)
    assert store.dropped("checkpoint", KEY) == manifest


def test_remote_drop_clears_the_cache(store: Store, files: str, work: Facts, cache: Path) -> None:
    put_folder(store, "checkpoint", files, work)
    store.local_folder("checkpoint", KEY)
    store.drop("checkpoint", KEY)
    assert not list(cache.glob("*/config.json"))


def test_stored_again_it_is_back(store: Store, files: str, work: Facts) -> None:
    manifest = put_folder(store, "checkpoint", files, work)
    store.drop("checkpoint", KEY)
    assert put_folder(store, "checkpoint", files, work).content_digest == manifest.content_digest
    assert store.has("checkpoint", KEY)
    assert store.dropped("checkpoint", KEY) is None
    assert Path(store.local_folder("checkpoint", KEY), "deep", "weights.safetensors").read_bytes() == b"weights"


def test_discarded_artifact_leaves_nothing(store: Store, files: str, work: Facts, cache: Path) -> None:
    put_folder(store, "parts", files, work)
    store.local_folder("parts", KEY)
    store.discard("parts", KEY)
    assert not store.was_made("parts", KEY)
    assert store._location.files("parts") == store._location.files("tmp") == []
    assert not list(cache.glob("*/config.json"))
    store.discard("parts", KEY)
    put_folder(store, "parts", files, work)
    assert store.read_file("parts", KEY, "config.json") == b"{}"


@pytest.mark.parametrize("num_calls", range(4))
def test_killed_drop_is_all_or_nothing(
    store: Store, files: str, work: Facts, monkeypatch: pytest.MonkeyPatch, num_calls: int
) -> None:
    manifest = put_folder(store, "checkpoint", files, work)
    made, location = 0, store._location
    replace, delete = location.replace, location.delete

    def count() -> None:
        nonlocal made
        if made == num_calls:
            raise KeyboardInterrupt
        made += 1

    def replaced(path: str, data: bytes) -> None:
        count()
        replace(path, data)

    def deleted(paths: Any) -> None:
        for path in paths:
            count()
            delete([path])

    with monkeypatch.context() as patch:
        patch.setattr(location, "replace", replaced)
        patch.setattr(location, "delete", deleted)
        with pytest.raises(KeyboardInterrupt):
            store.drop("checkpoint", KEY)
    if num_calls < 2:  # the manifest is copied first and deleted second
        assert Path(store.local_folder("checkpoint", KEY), "config.json").read_text() == "{}"
        assert store.dropped("checkpoint", KEY) is None
    else:
        assert not store.has("checkpoint", KEY)
        assert store.dropped("checkpoint", KEY) == manifest
    store.drop("checkpoint", KEY)
    assert [file.path for file in store._location.files("checkpoint")] == [f"checkpoint/{KEY}/dropped.json"]


def test_read_of_dropped_suggests_checkpoint_command(store: Store, files: str, work: Facts) -> None:
    put_folder(store, "checkpoint", files, work)
    store.drop("checkpoint", KEY)
    with pytest.raises(ArtifactMissingError, match=r"was dropped.*\n.*starpo checkpoint RUN --iteration N"):
        store.local_folder("checkpoint", KEY)


def test_dropped_during_read_is_missing(store: Store, files: str, work: Facts, nothing_verified_yet: None) -> None:
    """A reader that needs it then derives it, like one that was dropped earlier."""
    manifest = put_folder(store, "checkpoint", files, work)
    Store(store.url).drop("checkpoint", KEY)
    for read in (store.folder_of, lambda manifest: store.file_of(manifest, "config.json")):
        with pytest.raises(ArtifactMissingError, match="was dropped"):
            read(manifest)


def test_what_never_was_cannot_be_dropped(store: Store) -> None:
    assert store.dropped("checkpoint", KEY) is None
    assert not store.was_made("checkpoint", KEY)
    with pytest.raises(ArtifactMissingError, match="no artifact"):
        store.drop("checkpoint", KEY)


def test_edited_dropped_manifest_is_rejected(local: Store, files: str, work: Facts) -> None:
    put_folder(local, "checkpoint", files, work)
    local.drop("checkpoint", KEY)
    file = Path(local.url, "checkpoint", KEY, "dropped.json")
    file.write_text(json.dumps({**json.loads(file.read_text()), "content_digest": "0" * 64}))
    with pytest.raises(ArtifactDamagedError, match=r"dropped\.json was changed"):
        local.dropped("checkpoint", KEY)


def test_put_dropped_equals_put_and_drop(store: Store, files: str, work: Facts) -> None:
    entries = entries_of(Path(files))
    born = store.put_dropped("checkpoint", entries, work)
    assert not store.has("checkpoint", KEY)
    assert store.was_made("checkpoint", KEY)
    assert store.dropped("checkpoint", KEY) == born
    assert [file.path for file in store._location.files("checkpoint")] == [f"checkpoint/{KEY}/dropped.json"]
    assert store.contradictions(born) == []
    assert store.put_dropped("checkpoint", entries, work) == born
    stored = put_folder(store, "checkpoint", files, work)
    assert (stored.content_digest, stored.headline) == (born.content_digest, born.headline)
    assert store.dropped("checkpoint", KEY) is None
    assert store.put_dropped("checkpoint", entries, work) == stored  # it is there, so nothing is dropped
    assert store.has("checkpoint", KEY)


def test_put_after_drop_requires_same_content(store: Store, files: str, work: Facts) -> None:
    born = store.put_dropped("checkpoint", entries_of(Path(files)), work)
    Path(files, "config.json").write_text("[]")
    with pytest.raises(DerivationError, match="was made again, and its content digest is"):
        store.put_dropped("checkpoint", entries_of(Path(files)), work)
    with pytest.raises(DerivationError, match="was made again"):
        put_folder(store, "checkpoint", files, work)
    assert store.dropped("checkpoint", KEY) == born
    put_folder(store, "checkpoint", files, replace(work, is_deterministic=False))
    assert store.has("checkpoint", KEY)
