"""The store on a real S3 endpoint: moto's server, on loopback, started and stopped here."""

import os
import socket
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3
import pytest

from ragen.errors import ArtifactMissingError, DataError, StoreError
from ragen.store import Store, location
from schemas.examples import example, example_turns
from schemas.manifest import Stage

pytestmark = pytest.mark.integration

SECRET = "a-secret-that-must-not-be-shown"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(autouse=True)
def _account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "an-access-key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def bucket(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An empty bucket, through boto3, so that tests see what lies there with other eyes than the store's."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    name = f"bucket-{uuid.uuid4().hex}"
    made = boto3.resource("s3", endpoint_url=endpoint).create_bucket(Bucket=name)
    yield made
    made.objects.all().delete()
    made.delete()


def work(key: str = "k") -> dict[str, Any]:
    return {"key": key, "stage": Stage(name="rollout", version=1), "settings": {}, "inputs": {}, "seed": 1}


def names(bucket: Any) -> list[str]:
    return sorted(item.key for item in bucket.objects.all())


def test_dataset_and_folder_come_back(bucket: Any, tmp_path: Path) -> None:
    store = Store(f"s3://{bucket.name}/deep/prefix")
    assert not store.has("turns", "k")
    manifest = store.put_table("turns", example("turns"), **work())
    entry = manifest.files[0]
    assert entry.name == "part-00000.parquet"
    assert entry.path.endswith("/part-00000.parquet")
    assert names(bucket) == [f"deep/prefix/turns/k/{entry.path}", "deep/prefix/turns/k/manifest.json"]
    assert store.has("turns", "k")
    assert store.read_table("turns", "k").equals(example("turns"))
    assert store.read_table("turns", "k", ["turn"]).num_columns == 1
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "checkpoint" / "model.safetensors").write_bytes(b"weights")
    store.put_folder("checkpoint", str(tmp_path / "checkpoint"), **work())
    assert (Path(store.local_folder("checkpoint", "k")) / "model.safetensors").read_bytes() == b"weights"


def test_runs(bucket: Any) -> None:
    runs = Store(f"s3://{bucket.name}").runs
    assert runs.list() == []
    runs.create("first", flow="starpo", preset=None, config={"seed": 1})
    runs.record_stage("first", 0, "rollout", {"turns": "t"})
    runs.set_state("first", "running", metrics={"success": 0.5})
    assert [run.name for run in runs.list()] == ["first"]
    assert runs.iterations("first") == {0: {"rollout": {"turns": "t"}}}
    assert runs.state("first").metrics == {"success": 0.5}  # type: ignore[union-attr]


def test_of_writers_at_once_one_wins_and_the_others_clean_up(bucket: Any) -> None:
    """Every writer has another content and has seen no artifact before it began."""
    num_writers = 4

    def put(number: int) -> str:
        store = Store(f"s3://{bucket.name}/race")
        store._artifacts.has = lambda *_: False  # type: ignore[method-assign]
        return store.put_table("turns", example_turns(1, number), **work()).manifest_digest

    with ThreadPoolExecutor(num_writers) as pool:
        digests = set(pool.map(put, range(num_writers)))
    store = Store(f"s3://{bucket.name}/race")
    assert digests == {store.manifest("turns", "k").manifest_digest}
    assert store.read_table("turns", "k") in [example_turns(1, number) for number in range(num_writers)]
    assert len(names(bucket)) == 2


def test_files_without_a_manifest_are_no_artifact(bucket: Any) -> None:
    """What a writer leaves that is killed before its last put."""
    bucket.put_object(Key="turns/k/0123456789ab/part-00000.parquet", Body=b"half")
    store = Store(f"s3://{bucket.name}")
    assert not store.has("turns", "k")
    with pytest.raises(ArtifactMissingError):
        store.read_table("turns", "k")
    store.put_table("turns", example("turns"), **work())
    assert store.read_table("turns", "k").equals(example("turns"))


def test_bad_data_go_to_quarantine(bucket: Any) -> None:
    with pytest.raises(DataError, match=rf"kept in s3://{bucket.name}/q/quarantine/turns-k-0"):
        Store(f"s3://{bucket.name}/q").put_table("turns", example("turns").slice(1), **work())
    assert [name.rsplit("/", 1)[1] for name in names(bucket)] == ["data.parquet", "failure_cases.parquet", "reason.txt"]


def test_wrong_bucket(bucket: Any) -> None:
    store = Store("s3://no-such-bucket/x")
    with pytest.raises(StoreError, match=r"cannot read s3://no-such-bucket/x/.*\nCreate the bucket first"):
        store.runs.create("r", flow="f", preset=None, config={})
    with pytest.raises(StoreError, match="Create the bucket first"):
        store.put_table("turns", example("turns"), **work())


def test_server_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing listens: refused at once, tried three times, then one message without secrets."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    started = time.monotonic()
    with pytest.raises(
        StoreError, match=r"cannot read s3://bucket/x/turns/k/manifest\.json.*\nGiven up after 3"
    ) as caught:
        Store("s3://bucket/x").put_table("turns", example("turns"), **work())
    assert time.monotonic() - started < 20
    assert SECRET not in str(caught.value)
    assert "an-access-key" not in str(caught.value)
    assert "nothing was lost, run the same command again" in str(caught.value)


def test_server_that_stays_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that accepts and says nothing is given up after the read time-out, a bounded number of times."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setitem(location._S3_OPTIONS["config_kwargs"], "read_timeout", 1)
        started = time.monotonic()
        with pytest.raises(StoreError, match="Given up after 3 tries"):
            Store("s3://bucket/x").has("turns", "k")
        assert 2 < time.monotonic() - started < 30


def test_no_credentials(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(StoreError, match="Check the credentials"):
        Store("s3://bucket/x").runs.create("r", flow="f", preset=None, config={})


def test_a_passing_failure_is_overcome(bucket: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(f"s3://{bucket.name}/x")
    calls = []
    honest = store._location._fs.pipe_file

    def shaky(place: str, data: bytes, **options: Any) -> Any:
        calls.append(place)
        if len(calls) == 1:
            raise ConnectionResetError("reset by peer")
        return honest(place, data, **options)

    monkeypatch.setattr(store._location._fs, "pipe_file", shaky)
    store.runs.create("r", flow="f", preset=None, config={})
    assert len(calls) == 2
    assert store.runs.get("r").name == "r"


def test_a_manifest_put_whose_answer_was_lost_is_ours(bucket: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first put arrives, its answer does not; the repeated one is refused, yet our files must stay."""
    store = Store(f"s3://{bucket.name}/x")
    honest = store._location._fs.pipe_file
    calls = []

    def lossy(place: str, data: bytes, **options: Any) -> Any:
        calls.append(place)
        honest(place, data, **options)
        if len(calls) == 1:
            raise ConnectionResetError("reset by peer")

    monkeypatch.setattr(store._location._fs, "pipe_file", lossy)
    store.put_table("turns", example("turns"), **work())
    assert len(calls) == 2
    assert store.read_table("turns", "k").equals(example("turns"))
