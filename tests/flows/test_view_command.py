"""`starpo view`: what it prints, and what it refuses, before it serves."""

import importlib
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from starpo.flows import view_server
from starpo.flows.cli import main
from starpo.ragen.store import Store
from tests.flows.documents import check
from tests.permissions import obey_permissions


@pytest.fixture
def store(tmp_path: Path, make_run: Callable[..., object]) -> Store:
    store = Store(str(tmp_path / "store"))
    make_run(store, "mine")
    return store


def refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    monkeypatch.setattr(sys, "argv", ["starpo", "view", "--no-browser", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code
    return capsys.readouterr().err


def test_unknown_run_is_refused(store: Store, monkeypatch, capsys) -> None:
    assert "did you mean mine?" in refused(monkeypatch, capsys, "mime", "--store", store.url)
    store.runs.create("sokoban-s0-1a2b3c4d", flow="starpo", preset="sokoban", config={})
    assert "did you mean sokoban-s0-1a2b3c4d?" in refused(monkeypatch, capsys, "sokobn", "--store", store.url)


def test_several_runs_open_compared() -> None:
    page = importlib.import_module("starpo.flows.cli.view")._page
    assert [page(runs, "") for runs in ([], ["a/b"], ["a&b", "c"])] == ["", "run/a%2Fb", "compare?run=a%26b&run=c"]
    assert [page(runs, "t") for runs in (["a"], ["a", "c"])] == ["run/a?token=t", "compare?run=a&run=c&token=t"]


def test_missing_store_is_refused(tmp_path: Path, monkeypatch, capsys) -> None:
    assert "nowhere" in refused(monkeypatch, capsys, "--store", str(tmp_path / "nowhere"))
    assert not (tmp_path / "nowhere").exists()


def test_port_in_use_is_named(store: Store, monkeypatch, capsys) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        message = refused(monkeypatch, capsys, "--store", store.url, "--port", str(port))
    assert f"127.0.0.1:{port} cannot be listened on (Address already in use); choose another --port" in message


def test_usual_port_in_use_is_replaced(monkeypatch) -> None:
    module = importlib.import_module("starpo.flows.cli.view")
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        monkeypatch.setattr(module, "_PORT", port)
        with module._listen("127.0.0.1", None) as listener:
            assert listener.getsockname()[1] not in (0, port)


@contextmanager
def serving(
    store: Store, *arguments: str, prepare: Callable[[], None] | None = None, num_lines: int = 2
) -> Iterator[str]:
    """Serve the store, and return what is printed; the process prepares itself before it begins."""
    command = [sys.executable, "-m", "starpo.flows.cli", "view", "--no-browser", "--port", "0", *arguments]
    command += ["--store", store.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=prepare) as process:
        assert process.stdout is not None
        yield "".join(process.stdout.readline() for _ in range(num_lines))
        process.terminate()


@pytest.mark.ci
def test_serving_writes_nothing(store: Store) -> None:
    before = sorted(str(path) for path in Path(store.url).rglob("*"))
    with serving(store, "mine") as printed:
        address = printed.split(": ", 1)[1].split()[0]
        assert address.endswith("/run/mine")
        assert urllib.request.urlopen(address, timeout=30).status == 200
    assert sorted(str(path) for path in Path(store.url).rglob("*")) == before  # nothing is written


@pytest.mark.ci
def test_page_address_as_json(store: Store) -> None:
    with serving(store, "mine", "--json", num_lines=1) as printed:
        page = check("view", printed)
        assert urllib.request.urlopen(page["address"], timeout=30).status == 200
    assert page["store"] == store.url


@pytest.mark.ci
def test_read_only_store_is_served(store: Store) -> None:
    paths = [Path(store.url), *Path(store.url).rglob("*")]
    modes = {path: path.stat().st_mode for path in paths}
    try:
        for path, mode in modes.items():
            path.chmod(mode & 0o555)
        with serving(store, "mine", prepare=obey_permissions) as printed:
            address = printed.split(": ", 1)[1].split()[0]
            assert b"mine" in urllib.request.urlopen(address, timeout=30).read()
            assert b"mine" in urllib.request.urlopen(address.partition("run/")[0], timeout=30).read()
    finally:
        for path, mode in modes.items():
            path.chmod(mode)


@pytest.mark.ci
def test_other_address_needs_token(store: Store) -> None:
    with serving(store, "--host", "127.0.0.2") as printed:
        address, _, token = printed.split(": ", 1)[1].split()[0].partition("?token=")
        assert len(token) > 20
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(address, timeout=30)
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        assert b"mine" in opener.open(f"{address}?token={token}", timeout=30).read()


@pytest.mark.ci
def test_server_in_background_is_found(store: Store, tmp_path: Path) -> None:
    state = str(tmp_path / "state")
    assert view_server.url(state, store.address) == ""
    view_server.begin(state, store.address)
    try:
        address = view_server.url(state, store.address, "mine")
        assert address.endswith("/run/mine")
        until = time.monotonic() + 30
        while True:
            try:
                assert urllib.request.urlopen(address, timeout=30).status == 200
                break
            except urllib.error.URLError:
                assert time.monotonic() < until
                time.sleep(0.1)
        assert view_server.url(state, str(tmp_path / "another")) == ""  # its pages are those of this store
        pid = view_server.process(state).running().pid
        view_server.begin(state, store.address)
        assert view_server.process(state).running().pid == pid
    finally:
        assert view_server.process(state).stop()
    assert view_server.url(state, store.address) == ""
