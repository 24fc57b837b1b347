"""`infra/images/bucket.py` creates a bucket once, and detects a server that ignores conditional writes."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

ACCOUNT = {"AWS_ACCESS_KEY_ID": "of-tests", "AWS_SECRET_ACCESS_KEY": "of-tests", "AWS_DEFAULT_REGION": "us-east-1"}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """moto's server with a single thread: of two concurrent conditional writes, moto may let both succeed."""
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    server = make_server("127.0.0.1", 0, DomainDispatcherApplication(create_backend_app), threaded=False)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()


def _bucket(root: Path, endpoint: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, root / "infra/images/bucket.py", *arguments],
        env={**os.environ, **ACCOUNT, "AWS_ENDPOINT_URL": endpoint},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_bucket_made_once_keeps_promise(root: Path, endpoint: str) -> None:
    assert _bucket(root, endpoint, "create", "s3://starpo/store").stdout == "bucket starpo created\n"
    assert _bucket(root, endpoint, "create", "s3://starpo/store").stdout == "bucket starpo already exists\n"
    checked = _bucket(root, endpoint, "check", "s3://starpo/store")
    assert checked.stdout == "bucket starpo: one winner of 8 conditional puts, 5 times\n", checked.stderr


def test_server_ignoring_conditions_is_detected(root: Path) -> None:
    import importlib.util

    spec = importlib.util.spec_from_file_location("bucket", root / "infra/images/bucket.py")
    assert spec is not None
    assert spec.loader is not None
    bucket = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bucket)

    class Careless:
        """Client of a server on which every conditional write succeeds."""

        class exceptions:  # noqa: N801
            class ClientError(Exception):
                pass

        def __init__(self) -> None:
            self.lock, self.body = threading.Lock(), b""

        def put_object(self, Body: bytes, **_: str) -> None:
            with self.lock:
                self.body = Body

        def get_object(self, **_: str) -> dict[str, object]:
            import io

            return {"Body": io.BytesIO(self.body)}

        def delete_object(self, **_: str) -> None:
            pass

    with pytest.raises(SystemExit, match="8 succeeded; expected exactly one"):
        bucket.check(Careless(), "starpo", "store")
