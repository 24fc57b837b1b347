"""Fixtures of the integration tests, such as real servers, started here on loopback on a free port, and stopped."""

import os
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, Any

import pytest
from filelock import FileLock

from tests.integration.installing import install

_ROOT = Path(__file__).parents[2]
ACCOUNT = {
    "AWS_ACCESS_KEY_ID": "an-access-key-of-tests",
    "AWS_SECRET_ACCESS_KEY": "a-secret-that-must-not-be-shown",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
}
"""Environment variables of an S3 account, which exclude any other."""
_PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
_MOTO = "import sys; from moto.server import main; main(['-H', '127.0.0.1', '-p', sys.argv[1]])"


@pytest.fixture(scope="module", autouse=True)
def _threads(request: pytest.FixtureRequest) -> Iterator[None]:
    """One worker process that plays, however many cores there are, or as many as `THREADS` of the module says: each
    takes seconds to import torch, and the number changes no byte (`test_local_training.py`)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STARPO_THREADS", getattr(request.module, "THREADS", "1"))
        yield


@contextmanager
def _s3_server(code: str = _MOTO, output: IO[str] | int = subprocess.DEVNULL) -> Iterator[str]:
    """Start moto's server, or other code that serves on the port in its first argument; yields its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    server = subprocess.Popen([sys.executable, "-c", code, str(port)], stdout=output, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(f"{url}/moto-api/data.json", timeout=1).close()
                break
            except OSError:
                assert server.poll() is None, "moto's server ended at once"
                assert time.monotonic() < deadline, "moto's server did not answer within a minute"
                time.sleep(0.1)
        yield url
    finally:
        server.terminate()
        server.wait(timeout=10)


@pytest.fixture(scope="session")
def s3_server() -> Callable[..., AbstractContextManager[str]]:
    """Context manager that starts an S3 server: `with s3_server() as url`."""
    return _s3_server


@pytest.fixture(scope="module")
def endpoint(s3_server: Callable[..., AbstractContextManager[str]]) -> Iterator[str]:
    """Address of moto's server, which has no buckets yet."""
    with s3_server() as url:
        yield url


@pytest.fixture(scope="session")
def ceph() -> Iterator[dict[str, str]]:
    """Environment variables for clients of Ceph's gateway; skips tests if it is not installed."""
    program = [sys.executable, str(_ROOT / "infra/s3/ceph.py")]
    with tempfile.TemporaryDirectory(prefix="ceph-") as run:
        where = ["--folder", os.environ.get("CEPH_FOLDER", str(_ROOT / "var/ceph")), "--run", run]
        started = subprocess.run([*program, "start", *where], capture_output=True, text=True)
        if "run `install` first" in started.stderr:
            pytest.skip("Ceph is not installed (python infra/s3/ceph.py install)")
        assert started.returncode == 0, started.stderr
        try:
            yield dict(line.removeprefix("export ").split("=", 1) for line in started.stdout.splitlines())
        finally:
            subprocess.run([*program, "stop", *where], check=True, capture_output=True)


@pytest.fixture
def s3_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The only S3 account in the environment; downloads are cached in the test's own folder."""
    for name, value in {**ACCOUNT, "XDG_CACHE_HOME": str(tmp_path / "cache")}.items():
        monkeypatch.setenv(name, value)
    return ACCOUNT


@pytest.fixture(scope="session")
def prefect_server() -> Iterator[None]:
    """Prefect server that this process uses."""
    from prefect.testing.utilities import prefect_test_harness

    with pytest.MonkeyPatch.context() as patch:
        # a task that waits for a concurrency limit polls after one second instead of ten
        patch.setenv("PREFECT_SERVER_TASKS_TAG_CONCURRENCY_SLOT_WAIT_SECONDS", "1")
        with prefect_test_harness(server_startup_timeout=120):
            yield


@pytest.fixture(scope="session")
def of_all_workers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of all processes of this test run, for what one of them makes."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session")
def begun(of_all_workers: Path) -> Callable[..., str]:
    """Function that puts the first checkpoint of a smoke run into a store: `begun(folder, settings={})`.

    It returns the store's address. One process computes that checkpoint, and the others copy it. For tests of what
    follows the warm start.
    """
    from starpo.flows.presets import preset
    from starpo.ragen.store import Store
    from starpo.tasks.warm_start import warm_start

    def begin(folder: Path, settings: dict[str, Any] | None = None) -> str:
        shared = of_all_workers / "begun"
        with FileLock(f"{shared}.lock"):
            keys = warm_start(preset("smoke", settings or {})).carry_out(Store(str(shared)))
        for kind, key in keys.items():
            shutil.copytree(shared / kind / key, folder / kind / key)
        return str(folder)

    return begin


@pytest.fixture(scope="session")
def wheel(of_all_workers: Path) -> Path:
    """The wheel of this checkout, which one process builds."""
    folder = of_all_workers / "wheel"
    with FileLock(f"{folder}.lock"):
        if not list(folder.glob("*.whl")):
            _build_wheel(folder)
    (wheel_file,) = folder.glob("*.whl")
    return wheel_file


def _build_wheel(folder: Path) -> None:
    source = folder / "source"  # a copy, so that the build leaves nothing in the checkout
    for name in ("starpo", "flows", "tasks", "ragen", "schemas"):
        shutil.copytree(_ROOT / name, source / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(_ROOT / name, source)
    subprocess.run([*_PIP, "wheel", "--no-deps", "-w", str(folder), str(source)], check=True)


@pytest.fixture(scope="module")
def installed(request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Virtual environment with the wheel, what the module's `INSTALL` brings, lines of `pip install`, and no more."""
    environment = tmp_path_factory.mktemp("installed") / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    into = ["install", "--no-deps", "--prefix", str(environment), "--ignore-installed", str(wheel)]
    subprocess.run([*_PIP, *into], check=True)
    install(request.module.INSTALL, Path(sysconfig.get_path("purelib", vars={"base": str(environment)})))
    for script in (environment / "bin").glob("starpo"):
        lines = script.read_text().splitlines(keepends=True)
        script.write_text(f"#!{environment}/bin/python\n" + "".join(lines[1:]))
    return environment


@pytest.fixture
def folder(finished: Path, tmp_path: Path) -> Path:
    """Copy of the finished run's store, for the test to tamper with."""
    return Path(shutil.copytree(finished, tmp_path / "store"))


@pytest.fixture
def shell(installed: Path, tmp_path: Path, free_tcp_port: int) -> Iterator[dict[str, str]]:
    """Environment variables of a user in an empty folder; the server that the user starts is stopped afterwards."""
    env = {
        name: os.environ[name]
        for name in ("LANG", "OMP_NUM_THREADS", "OMP_WAIT_POLICY", "TMPDIR")
        if name in os.environ
    } | {
        "PATH": f"{installed}/bin:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(tmp_path / "home"),
        "PREFECT_API_URL": f"http://127.0.0.1:{free_tcp_port}/api",
    }
    (tmp_path / "home").mkdir()
    (tmp_path / "work").mkdir()
    yield env
    subprocess.run(["starpo", "down"], cwd=tmp_path / "work", env=env, check=False)
