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
def test_an_address_names_a_folder_or_a_bucket(url: str, kind: type) -> None:
    location = open_location(url)
    assert type(location) is kind
    assert location.name == url


def test_an_unknown_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StoreError, match="the store's address ~nobody-here/store names an unknown home folder"):
        open_location("~nobody-here/store")


def test_files_are_replaced_created_once_listed_and_deleted(location: Location) -> None:
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
    for read in (location.read, location.read_lasting, location.digest):
        with pytest.raises(FileNotFoundError):
            read(MANIFEST)


def test_a_place_without_runs_says_why_it_is_no_store(location: Location) -> None:
    assert location.absence() in ("there is no such folder", "it has nothing below runs/")
    location.replace("runs/mine/run.json", b"{}")
    assert location.absence() == ""


def test_manifests_are_listed_and_misses_are_known_where_asking_again_costs_a_request(location: Location) -> None:
    assert not location.was_missed(ARTIFACT)
    assert location.manifests(ARTIFACT) == []
    assert location.was_missed(ARTIFACT) == isinstance(location, Bucket)
    location.replace(FILE, b"rows")
    location.replace(DROPPED, b"{}")
    assert location.manifests(ARTIFACT) == ["dropped.json"]
    assert not location.was_missed(ARTIFACT)


def test_a_hidden_artifact_has_no_manifest_and_keeps_its_files(location: Location) -> None:
    location.replace(FILE, b"rows")
    location.replace(MANIFEST, b"{}")
    place = location.hide(ARTIFACT, "manifest.json")
    assert location.manifests(ARTIFACT) == []
    assert location.read(f"{place}/part.parquet") == b"rows"
    assert (place == ARTIFACT) == isinstance(location, Bucket)


def test_a_folder_that_has_gone_is_not_hidden(tmp_path: Path) -> None:
    assert open_location(str(tmp_path)).hide(ARTIFACT, "manifest.json") is None


def test_attempts_have_names_of_their_own_on_object_storage_alone(location: Location) -> None:
    (path,) = location.paths_of(["part.parquet"])
    assert path.endswith("part.parquet")
    assert location.is_attempt(path) == isinstance(location, Bucket)
    assert not location.is_attempt("part.parquet")
    assert location.paths_of(["a"]) != location.paths_of(["a"]) or isinstance(location, Folder)
