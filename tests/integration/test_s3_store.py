"""The store on real S3 servers: moto's, and Ceph's gateway if it is installed; on loopback, started here."""

import hashlib
import os
import shutil
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3
import pytest

from starpo.ragen.core.errors import ArtifactMissingError, DataError, StoreError
from starpo.ragen.store import Facts, Store
from starpo.ragen.store.remote import object_storage
from starpo.ragen.store.remote.opening import open_location
from starpo.schemas.manifest import Stage
from tests.examples import example, example_turns, put_folder


@pytest.fixture(scope="module", params=["moto", pytest.param("ceph", marks=pytest.mark.ceph)])
def server(request: pytest.FixtureRequest) -> dict[str, str]:
    """Environment variables with the server's address and, if it has accounts, the credentials."""
    if request.param == "ceph":
        return dict(request.getfixturevalue("ceph"))
    return {"AWS_ENDPOINT_URL": request.getfixturevalue("endpoint")}


@pytest.fixture
def bucket(server: dict[str, str], s3_account: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Empty bucket, accessed through boto3, so that tests see its contents independently of the store."""
    for name, value in server.items():
        monkeypatch.setenv(name, value)
    made = boto3.Session().resource("s3").create_bucket(Bucket=f"bucket-{uuid.uuid4().hex}")
    yield made
    made.objects.all().delete()
    made.delete()


def work(key: str = "k") -> Facts:
    return Facts(key=key, stage=Stage(name="rollout", version=1), settings={}, inputs={}, seed=1)


def names(bucket: Any) -> list[str]:
    return sorted(item.key for item in bucket.objects.all())


def test_dataset_and_folder_come_back(bucket: Any, tmp_path: Path) -> None:
    store = Store(f"s3://{bucket.name}/deep/prefix")
    assert not store.has("turns", "k")
    manifest = store.put_table("turns", example("turns"), work())
    entry = manifest.files[0]
    assert entry.name == "part-00000.parquet"
    assert entry.path.endswith("/part-00000.parquet")
    assert names(bucket) == [f"deep/prefix/turns/k/{entry.path}", "deep/prefix/turns/k/manifest.json"]
    assert store.has("turns", "k")
    assert store.read_table("turns", "k").equals(example("turns"))
    assert store.read_table("turns", "k", ["turn"]).num_columns == 1
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "model.safetensors").write_bytes(b"weights")
    put_folder(store, "checkpoint", str(tmp_path / "checkpoint"), work())
    assert (Path(store.local_folder("checkpoint", "k")) / "model.safetensors").read_bytes() == b"weights"


def test_one_of_concurrent_writers_wins(bucket: Any) -> None:
    """Every writer has different content, and saw no artifact when it started."""
    num_writers = 4

    def put(number: int) -> str:
        store = Store(f"s3://{bucket.name}/race")
        store.has = lambda *_: False  # type: ignore[method-assign]
        return store.put_table("turns", example_turns(1, number), work()).manifest_digest

    with ThreadPoolExecutor(num_writers) as pool:
        digests = set(pool.map(put, range(num_writers)))
    store = Store(f"s3://{bucket.name}/race")
    assert digests == {store.manifest("turns", "k").manifest_digest}
    assert store.read_table("turns", "k") in [example_turns(1, number) for number in range(num_writers)]
    assert len(names(bucket)) == 2


def test_files_without_manifest_no_artifact(bucket: Any) -> None:
    """A writer that is killed before its last put leaves such files."""
    bucket.put_object(Key="turns/k/0123456789ab/part-00000.parquet", Body=b"half")
    store = Store(f"s3://{bucket.name}")
    assert not store.has("turns", "k")
    with pytest.raises(ArtifactMissingError):
        store.read_table("turns", "k")
    store.put_table("turns", example("turns"), work())
    assert store.read_table("turns", "k").equals(example("turns"))


def test_bad_data_go_to_quarantine(bucket: Any) -> None:
    with pytest.raises(DataError, match=rf"kept in s3://{bucket.name}/q/quarantine/turns-k-[0-9a-f]{{16}}"):
        Store(f"s3://{bucket.name}/q").put_table("turns", example("turns").slice(1), work())
    assert [name.rsplit("/", 1)[1] for name in names(bucket)] == ["data.parquet", "failure_cases.parquet", "reason.txt"]


def test_wrong_bucket(bucket: Any) -> None:
    store = Store("s3://no-such-bucket/x")
    with pytest.raises(StoreError, match=r"cannot read s3://no-such-bucket/x/.*\nCreate the bucket first"):
        store.runs.create("r", flow="f", preset=None, config={})
    with pytest.raises(StoreError, match="Create the bucket first"):
        store.put_table("turns", example("turns"), work())


def test_large_files_move_in_parts(bucket: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_storage, "PART_BYTES", 5 * 2**20)  # the minimum of S3
    content = os.urandom(3 * 5 * 2**20 + 123)
    (tmp_path / "sent").write_bytes(content)
    location = open_location(f"s3://{bucket.name}/x")
    location.upload(tmp_path / "sent", "large")
    assert bucket.Object("x/large").e_tag.strip('"').endswith("-4")  # 4 parts
    location.download("large", tmp_path / "fetched", len(content))
    assert (tmp_path / "fetched").read_bytes() == content
    assert location.digest("large") == (hashlib.sha256(content).hexdigest(), len(content))


@pytest.mark.parametrize("size", [0, 1, 9, 10, 11, 20])
def test_digests_of_any_size(bucket: Any, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """A file may end exactly at the end of a part, after which there is nothing to request."""
    monkeypatch.setattr(object_storage, "PART_BYTES", 10)
    bucket.put_object(Key="file", Body=bytes(size))
    location = open_location(f"s3://{bucket.name}")
    assert location.digest("file") == (hashlib.sha256(bytes(size)).hexdigest(), size)
    assert location.read_range("file", size, size + 5) == b""
    with pytest.raises(FileNotFoundError):
        location.digest("no-such-file")


def test_listings_are_of_one_folder(bucket: Any) -> None:
    for key in ("x/a/one", "x/a/deep/two", "x/ab/three", "a/four"):
        bucket.put_object(Key=key, Body=b"12345")
    location = open_location(f"s3://{bucket.name}/x")
    assert location.names("") == ["a", "ab"]
    assert location.names("a") == ["deep", "one"]
    assert location.names("nothing") == []
    assert [(file.path, file.size_bytes) for file in location.files("a")] == [("a/deep/two", 5), ("a/one", 5)]
    assert location.files("nothing") == []
    assert [file.path for file in location.files("")] == ["a/deep/two", "a/one", "ab/three"]
    assert (
        open_location(f"s3://{bucket.name}/empty").names("")
        == open_location(f"s3://{bucket.name}/empty").files("")
        == []
    )


def test_one_of_concurrent_creators_wins(bucket: Any) -> None:
    location = open_location(f"s3://{bucket.name}")
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda number: location.create("marker", b"%d" % number), range(8)))
    assert won.count(True) == 1
    assert location.read("marker") == b"%d" % won.index(True)


def test_a_dropped_artifact_comes_back(bucket: Any, tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "model.safetensors").write_bytes(b"weights")
    put_folder(Store(f"s3://{bucket.name}"), "checkpoint", str(tmp_path / "checkpoint"), work())
    Store(f"s3://{bucket.name}").drop("checkpoint", "k")
    assert names(bucket) == ["checkpoint/k/dropped.json"]
    store = Store(f"s3://{bucket.name}")
    assert store.was_made("checkpoint", "k")
    assert not store.has("checkpoint", "k")
    with pytest.raises(ArtifactMissingError, match="was dropped"):
        store.manifest("checkpoint", "k")
    put_folder(store, "checkpoint", str(tmp_path / "checkpoint"), work())
    assert [name.rsplit("/", 1)[1] for name in names(bucket)] == ["model.safetensors", "manifest.json"]


def test_artifact_deleted_by_another_is_missing(bucket: Any, tmp_path: Path) -> None:
    """This process has cached the manifest when it requests the files."""
    store = Store(f"s3://{bucket.name}")
    store.put_table("turns", example("turns"), work())
    shutil.rmtree(tmp_path / "cache")
    bucket.objects.all().delete()
    assert not store.has("turns", "k")
    with pytest.raises(ArtifactMissingError):
        store.local_folder("turns", "k")


def test_freshly_stored_data_not_fetched(bucket: Any) -> None:
    store = Store(f"s3://{bucket.name}")
    manifest = store.put_table("turns", example("turns"), work())
    bucket.Object(f"turns/k/{manifest.files[0].path}").delete()
    assert store.read_table("turns", "k").equals(example("turns"))
    assert Path(store.local_folder("turns", "k"), "part-00000.parquet").is_file()


@pytest.mark.ceph
@pytest.mark.parametrize("account", [{"AWS_ACCESS_KEY_ID": "no-such-key"}, {"AWS_SECRET_ACCESS_KEY": "wrong-secret"}])
def test_wrong_credentials(
    ceph: dict[str, str], s3_account: dict[str, str], account: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**ceph, **account}.items():
        monkeypatch.setenv(name, value)
    started = time.monotonic()
    with pytest.raises(
        StoreError, match=r"cannot read s3://bucket/x/runs/r/run\.json.*\nCheck the credentials"
    ) as caught:
        Store("s3://bucket/x").runs.create("r", flow="f", preset=None, config={})
    assert time.monotonic() - started < 10
    for value in (*ceph.values(), *account.values()):
        assert value not in str(caught.value) or value.startswith(("http", "us-", "when"))
