"""A checkpoint with adapters is completed by links to its base's weights; other checkpoints stay as stored."""

import errno
import json
from pathlib import Path

import pytest

from starpo.ragen.core.errors import ArtifactMissingError, PolicyError
from starpo.ragen.runs.stored_policy import complete_folder
from starpo.ragen.store import Facts, Store
from starpo.schemas.manifest import Stage
from tests.examples import put_folder


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Store(str(tmp_path / "store"))


def put(store: Store, tmp_path: Path, key: str, files: dict[str, str]) -> None:
    folder = tmp_path / f"made-{key}"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_text(content)
    put_folder(
        store,
        "checkpoint",
        str(folder),
        Facts(key=key, stage=Stage(name="x", version=1), settings={}, inputs={}, seed=0),
    )


BASE, ADAPTER = "a" * 64, "b" * 64


def test_base_weights_with_adapters_other_files(store, tmp_path):
    put(store, tmp_path, BASE, {"model.safetensors": "w", "config.json": "base", "critic.safetensors": "old"})
    files = {"adapter_model.safetensors": "ab", "config.json": "own", "base.json": json.dumps({"checkpoint": BASE})}
    put(store, tmp_path, ADAPTER, files)
    folder = Path(complete_folder(store, ADAPTER))
    assert {file.name: file.read_text() for file in folder.iterdir()} == {**files, "model.safetensors": "w"}
    assert all(file.is_symlink() for file in folder.iterdir())
    assert complete_folder(store, ADAPTER) == str(folder)
    assert complete_folder(store, BASE) == store.local_folder("checkpoint", BASE)


def test_refused_links_are_reported(store, tmp_path, monkeypatch):
    """As on a disk without symbolic links, or a system that forbids them."""

    def refuse(place: Path, _: Path) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted", str(place))

    put(store, tmp_path, BASE, {"model.safetensors": "w"})
    put(store, tmp_path, ADAPTER, {"base.json": json.dumps({"checkpoint": BASE})})
    monkeypatch.setattr(Path, "symlink_to", refuse)
    with pytest.raises(
        PolicyError, match=r"symbolic link to '.*' cannot be made \(Operation not permitted\); let XDG_"
    ):
        complete_folder(store, ADAPTER)
    assert list((tmp_path / "cache" / "starpo" / "complete").iterdir()) == []


def test_missing_base_is_reported(store, tmp_path):
    put(store, tmp_path, ADAPTER, {"base.json": json.dumps({"checkpoint": BASE})})
    with pytest.raises(ArtifactMissingError, match=BASE):
        complete_folder(store, ADAPTER)


def test_note_without_base_is_reported(store, tmp_path):
    put(store, tmp_path, ADAPTER, {"base.json": "[]"})
    with pytest.raises(PolicyError, match="does not name a checkpoint"):
        complete_folder(store, ADAPTER)
