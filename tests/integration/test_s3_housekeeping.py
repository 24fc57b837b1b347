"""Copies, deletion, usage and checks on a real S3 endpoint: moto's server, on loopback, started and stopped here."""

import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest

from starpo.ragen.store import Store
from starpo.ragen.store.keeping.copying import copy_run
from starpo.ragen.store.keeping.garbage import delete_garbage, find_garbage
from starpo.ragen.store.keeping.integrity import verify_store
from starpo.ragen.store.keeping.usage import measure
from starpo.ragen.store.remote.opening import open_location

MakeRun = Callable[..., list[tuple[str, str]]]
LATER = datetime.now(UTC) + timedelta(days=2)


@pytest.fixture
def bucket(endpoint: str, s3_account: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Empty bucket, accessed through boto3, so that tests see its contents independently of the store."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    made = boto3.resource("s3", endpoint_url=endpoint).create_bucket(Bucket=f"bucket-{uuid.uuid4().hex}")
    yield made
    made.objects.all().delete()
    made.delete()


def content(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_run_round_trip_s3_is_bytewise(bucket: Any, make_run: MakeRun, tmp_path: Path) -> None:
    local, remote = Store(str(tmp_path / "store")), open_location(f"s3://{bucket.name}/deep/prefix")
    made = make_run(local, "mine", 1)
    num_bytes = copy_run(open_location(local.url), "mine", remote).bytes_copied
    keys = [item.key for item in bucket.objects.all()]
    assert all(key.startswith("deep/prefix/") for key in keys)
    assert not any("/leases/" in key for key in keys)
    assert verify_store(remote).damages == []
    usage = measure(remote)
    assert usage.size_bytes == sum(item.size for item in bucket.objects.all())
    assert [run.number for run in usage.runs] == [len(made)]
    again = copy_run(open_location(local.url), "mine", remote)
    assert (again.num_copied, again.num_present) == (0, len(made))
    back = open_location(str(tmp_path / "back"))
    assert copy_run(remote, "mine", back).bytes_copied == num_bytes
    assert content(tmp_path / "back") == content(tmp_path / "store")
    assert not (tmp_path / "cache").exists()


def test_unneeded_artifacts_are_deleted(bucket: Any, make_run: MakeRun) -> None:
    store = Store(f"s3://{bucket.name}/store")
    location = open_location(store.url)
    make_run(store, "mine", 1)
    kept = {item.key for item in bucket.objects.all()}
    make_run(store, "gone", 1, keep=0.25)
    bucket.objects.filter(Prefix="store/runs/gone/").delete()
    bucket.put_object(Key=f"store/turns/{'f' * 32}/0123456789ab/part-00000.parquet", Body=b"half uploaded")
    assert find_garbage(location).doomed == []
    garbage = find_garbage(location, now=LATER)
    assert len(garbage.doomed) == 5
    delete_garbage(location, garbage)
    assert {item.key for item in bucket.objects.all()} == kept
    assert verify_store(location).damages == []
