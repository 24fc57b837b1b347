"""SQL over a store on a real S3 endpoint; the server itself counts the bytes that it sends."""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import boto3
import pytest

from starpo.ragen.core.errors import StoreError
from starpo.ragen.evidence.audit.stored import open_database
from starpo.ragen.store import Facts, Store
from starpo.schemas.manifest import Manifest, Stage
from tests.examples import example_turns
from tests.integration.conftest import ACCOUNT

# Prints a line per answer: method, path, requested range, bytes sent.
_SERVER = """
import os
import sys
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

application = DomainDispatcherApplication(create_backend_app)

def counted(environ, start_response):
    def start(status, headers, *rest):
        sent = {name.lower(): value for name, value in headers}.get("content-length", 0)
        asked = environ.get("HTTP_RANGE", "-")
        line = f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']} {asked} {sent}\\n"
        os.write(1, line.encode())  # at once: requests are answered by many threads
        return start_response(status, headers, *rest)
    return application(environ, start)

make_server("127.0.0.1", int(sys.argv[1]), counted, threaded=True).serve_forever()
"""


@pytest.fixture(scope="module")
def log(
    tmp_path_factory: pytest.TempPathFactory, s3_server: Callable[..., AbstractContextManager[str]]
) -> Iterator[Path]:
    """Log of the requests to moto's server, whose address is in AWS_ENDPOINT_URL."""
    file = tmp_path_factory.mktemp("log") / "requests.txt"
    with (
        file.open("w") as output,
        s3_server(_SERVER, output) as url,
        pytest.MonkeyPatch.context() as environment,
    ):
        for name, value in {**ACCOUNT, "AWS_ENDPOINT_URL": url}.items():
            environment.setenv(name, value)
        yield file


@pytest.fixture(scope="module")
def stored(log: Path) -> tuple[Store, Manifest]:
    boto3.resource("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"]).create_bucket(Bucket="runs")
    store = Store("s3://runs/prefix")
    store.runs.create("mine", flow="starpo", preset=None, config={})
    work = {"settings": {}, "inputs": {}, "seed": None, "stage": Stage(name="rollout", version=1)}
    for iteration in range(3):
        key = f"{iteration:032x}"
        manifest = store.put_table("turns", example_turns(300, first_group=iteration), Facts(key=key, **work))
        store.runs.record_stage("mine", iteration, "rollout", {"turns": key})
    return store, manifest


def sent(log: Path, since: int) -> list[tuple[str, str, int]]:
    """Return path, range and bytes sent of every read of a Parquet file since this position in the log."""
    reads = re.findall(r"^GET (\S+\.parquet)\S* (\S+) (\d+)$", log.read_text()[since:], re.MULTILINE)
    return [(path, byte_range, int(size)) for path, byte_range, size in reads]


def test_only_queried_columns_are_sent(stored: tuple[Store, Manifest], log: Path) -> None:
    store, manifest = stored
    since = len(log.read_text())
    with open_database(store, ["mine"]) as database:
        answer = database.query("select iteration, avg((not format_ok)::integer) as invalid from turns group by all")
    assert sorted(answer.to_pylist(), key=lambda row: row["iteration"]) == [
        {"iteration": iteration, "invalid": 0.0} for iteration in range(3)
    ]
    requests = sent(log, since)
    assert len({path for path, _, _ in requests}) == 3
    assert all(byte_range.startswith("bytes=") for _, byte_range, _ in requests)
    whole = 3 * manifest.files[0].size_bytes
    assert sum(size for _, _, size in requests) < 0.15 * whole  # including the footers, 64 KiB per file


def test_only_queried_iterations_are_sent(stored: tuple[Store, Manifest], log: Path) -> None:
    store, _ = stored
    since = len(log.read_text())
    with open_database(store, ["mine"]) as database:
        answer = database.query("select count(distinct group_id) as n from turns where iteration = 1")
    assert answer.to_pylist() == [{"n": 300}]
    assert len({path for path, _, _ in sent(log, since)}) == 1


def test_missing_bucket_is_one_error(stored: tuple[Store, Manifest]) -> None:
    with pytest.raises(StoreError, match="Create the bucket first"):
        open_database(Store("s3://no-such-bucket"), ["mine"])
