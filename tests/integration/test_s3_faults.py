"""Faults between the store and its S3 server: overcome, or one clear error in bounded time; nothing is half-written."""

import errno
import os
import re
import socket
import time
import traceback
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import boto3
import pytest
from botocore.retries.standard import ExponentialBackoff

from starpo.ragen.core.errors import StoreError
from starpo.ragen.store import Facts, Store
from starpo.ragen.store.keeping.integrity import verify_store
from starpo.ragen.store.keeping.inventory import take_inventory
from starpo.ragen.store.remote import object_storage
from starpo.ragen.store.remote.location import Location
from starpo.ragen.store.remote.opening import open_location
from starpo.schemas.manifest import MANIFEST_NAME, Stage
from tests.examples import example
from tests.integration.faults import PASSING, Fault, FaultyProxy, always, scripted, seeded

MakeRun = Callable[..., list[tuple[str, str]]]
RUN_NAME = "run.json"
WORK: Facts = Facts(key="k", stage=Stage(name="rollout", version=1), settings={}, inputs={}, seed=1)
CONTENT = os.urandom(5 * 2**20 + 123)


@pytest.fixture(scope="module")
def proxy(endpoint: str) -> Iterator[FaultyProxy]:
    with FaultyProxy(endpoint) as made:
        yield made


@pytest.fixture(scope="module")
def past_the_proxy(endpoint: str) -> Any:
    """Resource of boto3 that bypasses the proxy; shared, since it is slow to create."""
    account = {"aws_access_key_id": "a-key", "aws_secret_access_key": "a-secret", "region_name": "us-east-1"}
    return boto3.Session(**account).resource("s3", endpoint_url=endpoint)


@pytest.fixture
def bucket(
    past_the_proxy: Any, proxy: FaultyProxy, s3_account: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Any]:
    """Empty bucket, accessed past the proxy; the store goes through the proxy, and pauses only briefly."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)
    monkeypatch.setattr(object_storage, "PAUSE_S", 0.001)
    monkeypatch.setattr(ExponentialBackoff, "delay_amount", lambda self, context: 0.0)
    proxy.schedule = scripted([])
    made = past_the_proxy.create_bucket(Bucket=f"bucket-{uuid.uuid4().hex}")
    yield made
    proxy.schedule = scripted([])
    made.objects.all().delete()
    made.delete()


@pytest.fixture
def location(bucket: Any) -> Location:
    """Location with a file in it, on a server that has answered before."""
    bucket.put_object(Key="x/a/file", Body=b"content")
    made = open_location(f"s3://{bucket.name}/x")
    made.read("a/file")
    return made


def upload(location: Location, folder: Path) -> bytes:
    (folder / "sent").write_bytes(CONTENT)
    location.upload(folder / "sent", "b")
    return location.read("b")


def download(location: Location, folder: Path) -> list[bytes]:
    location.download("a/file", folder / "fetched", 7)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(object_storage, "PART_BYTES", 3)
        location.download("a/file", folder / "in parts", 7)
    return [(folder / name).read_bytes() for name in ("fetched", "in parts")]


OPERATIONS: dict[str, tuple[Callable[[Location, Path], object], object]] = {
    "read": (lambda location, _: location.read("a/file"), b"content"),
    "read_range": (lambda location, _: location.read_range("a/file", 2, 5), b"nte"),
    "replace": (lambda location, _: (location.replace("b", b"new"), location.read("b")), (None, b"new")),
    "create": (lambda location, _: (location.create("b", b"new"), location.read("b")), (True, b"new")),
    "create late": (lambda location, _: location.create("a/file", b"new"), False),
    "names": (lambda location, _: location.names("a"), ["file"]),
    "files": (lambda location, _: [file.path for file in location.files("a")], ["a/file"]),
    "digest": (lambda location, _: location.digest("a/file")[1], 7),
    "delete": (lambda location, _: (location.delete(["a/file"]), location.names("a")), (None, [])),
    "upload": (upload, CONTENT),
    "download": (download, [b"content", b"content"]),
}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("fault", PASSING)
def test_every_operation_outlives_every_passing_fault(
    location: Location,
    proxy: FaultyProxy,
    tmp_path: Path,
    operation: str,
    fault: Fault,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first three requests meet the fault; botocore tries a request only twice, so the whole call is retried."""
    monkeypatch.setattr(object_storage, "PART_BYTES", 5 * 2**20)
    act, expected = OPERATIONS[operation]
    before = len(proxy.requests)
    proxy.schedule = scripted([fault, fault, fault])
    assert act(location, tmp_path) == expected
    num_faults = [request.fault for request in proxy.requests[before:]].count(fault)
    assert num_faults == 3 or (fault is Fault.SLOW and num_faults > 0)  # slow is not failed


@pytest.mark.parametrize("seed", range(4))
def test_run_is_stored_whole_or_hidden(
    bucket: Any, proxy: FaultyProxy, make_run: MakeRun, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With many faults and short timeouts, whatever is visible is intact, and running again completes the run."""
    store = Store(f"s3://{bucket.name}/store")
    proxy.schedule = seeded(seed, rate=0.3 if seed % 2 else 0.6)
    message = ""
    with monkeypatch.context() as impatient:
        impatient.setattr(object_storage, "PATIENCE_S", 1.0)
        impatient.setattr(object_storage, "FIRST_PATIENCE_S", 1.0)
        impatient.setattr(object_storage, "NUM_FIRST_TRIES", 2)
        try:
            make_run(store, "mine", 1)
        except StoreError as error:
            message = str(error)
    # The message tells what happened and what to do.
    assert not message or re.fullmatch("cannot .*\n.*nothing was lost, run the same command again.*", message)
    proxy.schedule = scripted([])
    check_visible(open_location(store.url))
    made = make_run(store, "mine", 1)
    assert set(take_inventory(open_location(store.url)).artifacts) == set(made)
    check_visible(open_location(store.url))


def check_visible(location: Location) -> None:
    """Assert that every visible artifact and every record is what was written."""
    if any(file.path.endswith((MANIFEST_NAME, RUN_NAME)) for file in location.files("")):
        assert verify_store(location).damages == []


def test_lost_manifest_answer_is_own_success(bucket: Any, proxy: FaultyProxy) -> None:
    store = Store(f"s3://{bucket.name}/x")
    is_manifest = re.compile(r"/manifest\.json$").search
    proxy.schedule = scripted([Fault.LOST], lambda method, path: method == "PUT" and bool(is_manifest(path)))
    made = store.put_table("turns", example("turns"), WORK)
    assert sorted(item.key for item in bucket.objects.all()) == [
        f"x/turns/k/{made.files[0].path}",
        "x/turns/k/manifest.json",
    ]
    assert Store(store.url).manifest("turns", "k") == made


def test_lost_lease_answer_keeps_holder(bucket: Any, proxy: FaultyProxy) -> None:
    runs = Store(f"s3://{bucket.name}/x").runs
    before = len(proxy.requests)
    proxy.schedule = scripted([Fault.LOST], lambda method, path: method == "PUT" and "/leases/" in path)
    with runs.hold("mine") as lease:
        lease.check()
    assert [request.fault for request in proxy.requests[before:]].count(Fault.LOST) == 1


@pytest.mark.parametrize("fault", [Fault.SLOW_DOWN, Fault.ERROR, Fault.RESET_BEFORE, Fault.LOST, Fault.TRUNCATED])
def test_lasting_fault_one_message_bounded_time(
    location: Location, proxy: FaultyProxy, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_storage, "PATIENCE_S", 1.0)
    proxy.schedule = always(fault)
    started = time.monotonic()
    with pytest.raises(StoreError, match=r"cannot read s3://.*/x/a/file: .*\n.*nothing was lost, run the same command"):
        location.read("a/file")
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("fault", [Fault.SLOW, Fault.SILENT])
def test_slow_or_silent_server_given_up(
    location: Location, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    """A server that drips is never silent for long, so only the time limit of the whole call ends it."""
    monkeypatch.setattr(object_storage, "PATIENCE_S", 1.0)
    monkeypatch.setattr("tests.integration.faults.DRIP_S", 0.5)
    proxy.schedule = always(fault)
    started = time.monotonic()
    with pytest.raises(StoreError, match=r"no answer in time\n"):
        location.read("a/file")
    assert time.monotonic() - started < 10


def test_short_outage_is_waited_for(location: Location, proxy: FaultyProxy) -> None:
    proxy.schedule = scripted([Fault.RESET_BEFORE] * 12)
    assert location.read("a/file") == b"content"


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (
            Fault.HTML,
            r"the server answered 404.*\nThe server at that address does not speak S3: check AWS_ENDPOINT_URL",
        ),
        (Fault.FULL, r"the server answered 507 XMinioStorageFull.*\nThe object storage is full: free some space"),
        (Fault.DENIED, r"the server answered 403 AccessDenied: Access Denied\.\nCheck the credentials' rights"),
    ],
)
@pytest.mark.parametrize("method", ["read", "replace", "names", "create"])
def test_permanent_failure_not_retried(
    location: Location, proxy: FaultyProxy, fault: Fault, message: str, method: str
) -> None:
    before = len(proxy.requests)
    proxy.schedule = always(fault)
    with pytest.raises(StoreError, match=rf"^cannot (read|write|list) s3://[^ ]*/x/b: {message}"):
        getattr(location, method)("b", *([b"new"] if method in ("replace", "create") else []))
    tries = len(proxy.requests) - before
    assert tries == 1 if fault is not Fault.FULL else tries <= 2  # botocore retries any 5xx


class TestAddress:
    """Wrong endpoints: one message within seconds, whatever answers there."""

    def refuse(self, monkeypatch: pytest.MonkeyPatch, url: str, limit_s: float = 10) -> str:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        started = time.monotonic()
        with pytest.raises(StoreError) as caught:
            Store("s3://bucket/x").runs.create("r", flow="f", preset=None, config={})
        assert time.monotonic() - started < limit_s
        return str(caught.value)

    @pytest.fixture(autouse=True)
    def _account(self, s3_account: dict[str, str]) -> None:
        """Credentials that no message may contain."""

    def test_nothing_listens(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        message = self.refuse(monkeypatch, f"http://127.0.0.1:{port}")
        assert message.startswith("cannot read s3://bucket/x/runs/r/run.json: EndpointConnectionError")
        assert "Given up after 3 tries. Check that the server runs and can be reached (AWS_ENDPOINT_URL" in message

    def test_silence(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(object_storage, "FIRST_PATIENCE_S", 2.0)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            message = self.refuse(monkeypatch, f"http://127.0.0.1:{silent.getsockname()[1]}")
        assert "no answer in time" in message

    def test_a_page_that_says_200(self, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch) -> None:
        """The console of some servers does this, on the next port."""
        proxy.schedule = always(Fault.PAGE)
        assert "does not speak S3: check AWS_ENDPOINT_URL" in self.refuse(monkeypatch, proxy.url)

    def test_https_where_http_is_spoken(self, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch) -> None:
        proxy.schedule = scripted([])
        assert "check http:// or https://" in self.refuse(monkeypatch, proxy.url.replace("http:", "https:"))

    @pytest.mark.parametrize("url", ["127.0.0.1:9000", "s3.example.org", "ftp://host"])
    def test_no_address(self, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
        assert f"AWS_ENDPOINT_URL is '{url}', expected an address such as" in self.refuse(monkeypatch, url)


class TestSecrets:
    """No message, and no chained error that a log might show, contains a credential."""

    CANARIES: ClassVar[dict[str, str]] = {
        "AWS_ACCESS_KEY_ID": "canary-access-key",
        "AWS_SECRET_ACCESS_KEY": "canary-secret/with+signs",
        "AWS_SESSION_TOKEN": "canary-session-token",
        "FSSPEC_S3_SECRET": "canary-of-fsspec",
    }

    @pytest.mark.parametrize("fault", [*PASSING, Fault.DENIED, Fault.FULL, Fault.HTML, Fault.PAGE])
    def test_in_the_environment(
        self, bucket: Any, proxy: FaultyProxy, fault: Fault, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name, value in self.CANARIES.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(object_storage, "PATIENCE_S", 0.2)
        monkeypatch.setattr(object_storage, "FIRST_PATIENCE_S", 0.2)
        proxy.schedule = always(fault)
        try:
            Store(f"s3://{bucket.name}/x").put_table("turns", example("turns"), WORK)
        except StoreError as error:
            self.check(error)
        else:
            assert fault is Fault.SLOW

    @pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
    def test_in_the_endpoint(self, s3_account: dict[str, str], monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
        monkeypatch.setenv(variable, "http://canary-user:canary-pass@127.0.0.1:1")
        with pytest.raises(StoreError, match=rf"{variable} is http://\*\*\*@127\.0\.0\.1:1, which carries") as caught:
            Store("s3://bucket/x")
        self.check(caught.value)

    @pytest.mark.parametrize("url", ["s3://canary-user:canary/pass@bucket/x", "s3://bucket/x?secret=canary-secret"])
    def test_in_the_store_s_address(self, url: str) -> None:
        with pytest.raises(StoreError, match="carries credentials") as caught:
            Store(url)
        self.check(caught.value)

    def test_in_what_a_server_says(self, s3_account: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary-secret")
        error = open_location("s3://bucket/x").failure("read", "file", OSError("your secret canary-secret is wrong"))
        assert str(error).startswith("cannot read s3://bucket/x/file: OSError: your secret *** is wrong\n")

    def test_in_manifests_and_records(self, bucket: Any, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in self.CANARIES.items():
            monkeypatch.setenv(name, value)
        make_run(Store(f"s3://{bucket.name}/x"), "mine", 1)
        for item in bucket.objects.all():
            assert b"canary" not in item.get()["Body"].read()

    @staticmethod
    def check(error: BaseException) -> None:
        shown = "".join(traceback.format_exception(error)).replace(__file__, "")
        shown = "\n".join(line for line in shown.splitlines() if not line.startswith("    "))  # lines of code
        assert "canary" not in shown


class TestFullDisk:
    """Full disk of this machine, which holds downloaded copies and staged uploads."""

    def test_in_parts(self, location: Location, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(object_storage, "PART_BYTES", 3)
        with pytest.raises(StoreError, match=r"No space left on device\nThe disk of this machine is full"):
            location.download("a/file", Path("/dev/full"), 7)

    def test_while_it_is_staged(self, bucket: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(*_: object, **__: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr("starpo.ragen.store.artifacts.datasets.write_dataset", full)
        with pytest.raises(StoreError, match=r"No space left on device\nThe disk of this machine is full"):
            Store(f"s3://{bucket.name}/x").put_table("turns", example("turns"), WORK)
        assert list(bucket.objects.all()) == []
