"""`Folder` and `Bucket`: what both promise, and what each does in its own way."""

import uuid
from pathlib import Path

import pytest

from starpo.ragen.core.errors import StoreError
from starpo.ragen.store.remote.bucket import Bucket
from starpo.ragen.store.remote.folder import Folder
from starpo.ragen.store.remote.location import Location
from starpo.ragen.store.remote.opening import open_location

ARTIFACT = f"turns/{'a' * 32}"
FILE, MANIFEST, DROPPED = f"{ARTIFACT}/part.parquet", f"{ARTIFACT}/manifest.json", f"{ARTIFACT}/dropped.json"


@pytest.fixture(params=["folder", "bucket"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    return open_location(str(tmp_path / "store") if request.param == "folder" else f"memory://{uuid.uuid4().hex}/store")


@pytest.mark.parametrize(
    ("url", "kind"), [("store", Folder), ("/store", Folder), ("file:///store", Folder), ("memory://store", Bucket)]
)
def test_open_location_by_address(url: str, kind: type) -> None:
    location = open_location(url)
    assert type(location) is kind
    assert location.name == url


def test_an_unknown_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StoreError, match="the store's address ~nobody-here/store names an unknown home folder"):
        open_location("~nobody-here/store")


def test_files_replace_create_list_and_delete(location: Location) -> None:
    assert location.names(ARTIFACT) == location.files(ARTIFACT) == []
    location.replace(FILE, b"old")
    location.replace_durably(FILE, b"new")
    assert location.read(FILE) == b"new"
    assert location.create_lasting(MANIFEST, b"{}")
    assert not location.create(MANIFEST, b"[]")
    assert location.read_lasting(MANIFEST) == b"{}"
    assert location.names(ARTIFACT) == ["manifest.json", "part.parquet"]
    assert [(file.path, file.size_bytes) for file in location.files("turns")] == [(MANIFEST, 2), (FILE, 3)]
    location.delete([FILE, FILE, MANIFEST])
    location.remove_empty(ARTIFACT)
    location.forget(MANIFEST)
    for read in (location.read, location.read_lasting, location.read_copied, location.digest):
        with pytest.raises(FileNotFoundError):
            read(MANIFEST)


def test_absence_says_why_not_a_store(location: Location) -> None:
    assert location.absence() in ("there is no such folder", "it has nothing below runs/")
    location.replace("runs/mine/run.json", b"{}")
    assert location.absence() == ""


def test_missed_manifest_is_remembered_in_buckets(location: Location) -> None:
    assert not location.was_missed(ARTIFACT)
    assert location.manifests(ARTIFACT) == []
    assert location.was_missed(ARTIFACT) == isinstance(location, Bucket)
    location.replace(FILE, b"rows")
    location.replace(DROPPED, b"{}")
    assert location.manifests(ARTIFACT) == ["dropped.json"]
    assert not location.was_missed(ARTIFACT)


def test_hidden_artifact_keeps_its_files(location: Location) -> None:
    location.replace(FILE, b"rows")
    location.replace(MANIFEST, b"{}")
    place = location.hide(ARTIFACT, "manifest.json")
    assert location.manifests(ARTIFACT) == []
    assert location.read(f"{place}/part.parquet") == b"rows"
    assert (place == ARTIFACT) == isinstance(location, Bucket)


def test_hide_of_missing_folder_is_none(tmp_path: Path) -> None:
    assert open_location(str(tmp_path)).hide(ARTIFACT, "manifest.json") is None


def test_attempt_paths_are_unique_in_buckets(location: Location) -> None:
    (path,) = location.paths_of(["part.parquet"])
    assert path.endswith("part.parquet")
    assert location.is_attempt(path) == isinstance(location, Bucket)
    assert not location.is_attempt("part.parquet")
    assert location.paths_of(["a"]) != location.paths_of(["a"]) or isinstance(location, Folder)
