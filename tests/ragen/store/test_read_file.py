from pathlib import Path

import pytest

from starpo.ragen.core.errors import ArtifactDamagedError, ArtifactMissingError
from starpo.ragen.store import Facts, Store
from starpo.schemas.manifest import Stage
from tests.examples import put_folder


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Store with checkpoint 'k': a tokenizer and weights."""
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "tokenizer.json").write_bytes(b"{}")
    (tmp_path / "made" / "model.safetensors").write_bytes(b"weights")
    store = Store(str(tmp_path / "store"))
    work = Facts(key="k", stage=Stage(name="warm_start", version=1), settings={}, inputs={}, seed=0)
    put_folder(store, "checkpoint", str(tmp_path / "made"), work)
    return store


def test_read_file_ignores_other_damage(store: Store) -> None:
    (Path(store.url) / "checkpoint" / "k" / "model.safetensors").write_bytes(b"others!")
    assert store.read_file("checkpoint", "k", "tokenizer.json") == b"{}"


def test_a_file_is_verified(store: Store) -> None:
    path = Path(store.url) / "checkpoint" / "k" / "tokenizer.json"
    path.write_bytes(b"[]")
    with pytest.raises(ArtifactDamagedError, match=r"the content of tokenizer\.json has changed since it was written"):
        store.read_file("checkpoint", "k", "tokenizer.json")
    path.unlink()
    with pytest.raises(ArtifactDamagedError, match=r"the file tokenizer\.json is missing"):
        store.read_file("checkpoint", "k", "tokenizer.json")


def test_unknown_file_error_lists_files(store: Store) -> None:
    with pytest.raises(ArtifactMissingError, match=r"no file \.\./x; it has: model\.safetensors, tokenizer\.json"):
        store.read_file("checkpoint", "k", "../x")
