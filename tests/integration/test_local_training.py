"""Training without a server: the record, the keys and the digests are those of a run with Prefect."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from starpo.flows.console.start import train_here
from starpo.flows.console.terminal import Console
from starpo.flows.presets import preset
from starpo.flows.starpo import starpo
from starpo.ragen.core.errors import StoreError
from starpo.ragen.runs.work import Output
from starpo.ragen.store import Store
from tests.flows.command import ragen
from tests.integration.run_digests import digests

pytestmark = pytest.mark.timeout(600)

THREADS = "2"
"""Two processes play the run here, and one with Prefect."""
UPDATE = {"update.importance_cap": 2.0, "update.optimiser.decay": "constant"}
SETTINGS = {"iterations": 2, "rollout.staleness": 1, **UPDATE}
"""The second rollout is played concurrently with the first update."""


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory, begun: Callable[..., str]) -> Store:
    """Store with the run 'mine', trained in this process."""
    store = Store(begun(tmp_path_factory.mktemp("local")))
    assert train_here(store, "mine", "smoke", preset("smoke", SETTINGS), Console(quiet=True)) == "mine"
    return store


@pytest.mark.usefixtures("prefect_server")
def test_local_record_equals_prefect_record(
    local: Store, tmp_path: Path, begun: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STARPO_THREADS", "1")
    other = Store(begun(tmp_path))
    starpo(preset("smoke", SETTINGS), preset="smoke", store=other.url, run="mine")
    assert other.runs.iterations("mine") == local.runs.iterations("mine")
    assert digests(other, "mine") == digests(local, "mine")
    assert [store.runs.seals("mine").broken for store in (other, local)] == [{}, {}]
    runs = [store.runs.get("mine").model_dump(exclude={"created"}) for store in (other, local)]
    assert runs[0] == runs[1]
    states = [store.runs.state("mine") for store in (other, local)]
    assert [(state.status, state.message) for state in states if state] == [("completed", "completed")] * 2


def test_restarted_run_is_found_complete(local: Store) -> None:
    before = local.runs.records("mine")
    train_here(local, "mine", "smoke", preset("smoke", SETTINGS), Console(quiet=True))
    assert local.runs.records("mine") == before


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (KeyboardInterrupt(), "cancelled", "from outside"),
        (KeyError("a bug"), "failed", "KeyError"),
    ],
)
def test_run_ended_early_is_continued(
    error: BaseException,
    status: str,
    message: str,
    local: Store,
    tmp_path: Path,
    begun: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, config = Store(begun(tmp_path)), preset("smoke", {"iterations": 1, **UPDATE})

    def fail(*_: object) -> Iterator[Output]:
        raise error
        yield  # a generator, like the stage

    with monkeypatch.context() as patch:
        patch.setattr("starpo.tasks.update._train", fail)
        with pytest.raises(type(error)):
            train_here(store, "mine", "smoke", config, Console(quiet=True))
    state = store.runs.state("mine")
    assert state is not None
    assert (state.status, state.message[: len(message)]) == (status, message)
    assert not store.runs.is_running("mine")
    train_here(store, "mine", "smoke", config, Console(quiet=True))
    assert store.runs.state("mine").status == "completed"  # type: ignore[union-attr]
    first, whole = store.runs.iterations("mine")[0], local.runs.iterations("mine")[0]
    assert first["update"] == whole["update"]


@pytest.mark.thorough
def test_same_command_continues_killed_run(local: Store, tmp_path: Path, begun: Callable[..., str]) -> None:
    store = Store(begun(tmp_path))
    settings = [f"--set={path}={value}" for path, value in {**SETTINGS, "rollout.staleness": 0}.items()]
    command = [sys.executable, "-m", "starpo.flows.cli", "train", "smoke", "--local", "--run", "mine", *settings]
    env = {**os.environ, "STARPO_STATE_DIR": str(tmp_path), "STARPO_STORE": store.url}
    process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL)
    while "rollout" not in store.runs.iterations("mine").get(0, {}):
        assert process.poll() is None
        time.sleep(0.02)
    process.kill()
    process.wait()
    assert not store.runs.is_running("mine")
    subprocess.run(command, env=env, stdout=subprocess.DEVNULL, check=True)
    assert store.runs.state("mine").status == "completed"  # type: ignore[union-attr]
    whole = digests(local, "mine")
    assert {key: digest for key, digest in digests(store, "mine").items() if key[0] == 0} == {
        key: digest for key, digest in whole.items() if key[0] == 0
    }


def test_command_trains_and_writes_report(tmp_path: Path, begun: Callable[..., str]) -> None:
    store = begun(tmp_path / "store")
    arguments = ("train", "smoke", "--local", "--iterations", "1", "--run", "mine", "--store", store)
    done = ragen(*arguments, STARPO_STATE_DIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "iteration 1/1 panel success" in done.stdout
    assert (tmp_path / "reports" / "mine.html").is_file()
    assert "Prefect" not in done.stdout
    forked = ragen("fork", "mine", "--from", "1", "--set", "filter.keep=1.0", "--local", "--store", store)
    assert "it can from none" in forked.stderr


def test_two_at_a_time_are_refused(local: Store) -> None:
    with (
        local.runs.hold("mine"),
        pytest.raises(StoreError, match="is working on run 'mine'"),
    ):
        train_here(local, "mine", "smoke", preset("smoke", SETTINGS), Console(quiet=True))
