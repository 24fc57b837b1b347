"""OpenEnv's servers on loopback: the environment that `openenv init` writes, and a game with an end and seeds."""

import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from starpo.ragen.core.errors import EnvironmentFault
from starpo.ragen.envs import make
from starpo.ragen.envs.check import check
from starpo.ragen.envs.suites.openenv import OpenEnvSettings

STARTUP_S = 120


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def served(command, port, folder):
    """Run a server until the end of the context; yield its address."""
    with (folder / "server.log").open("w") as log:
        server = subprocess.Popen([sys.executable, *command], cwd=folder, stdout=log, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + STARTUP_S
        while True:
            assert server.poll() is None, (folder / "server.log").read_text()
            assert time.monotonic() < deadline, "the server does not listen"
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
            except OSError:
                time.sleep(0.2)
            else:
                break
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(30)


@pytest.fixture
def echo(tmp_path):
    """Address of the package's echo environment, as `openenv init` writes it."""
    subprocess.run([Path(sys.executable).with_name("openenv"), "init", "echo_env"], cwd=tmp_path, check=True)
    port = free_port()
    command = ["-m", "uvicorn", "server.app:app", "--host", "127.0.0.1", "--port", str(port)]
    with served(command, port, tmp_path / "echo_env") as address:
        yield address


@pytest.fixture
def numbers(tmp_path):
    port = free_port()
    with served([Path(__file__).with_name("number_server.py"), str(port)], port, tmp_path) as address:
        yield address


def test_echo_is_played_over_several_episodes(echo):
    environment = make(OpenEnvSettings(task=echo))
    for seed in range(3):
        observation, _ = environment.reset(seed=seed)
        assert observation == '{"echoed_message": "Echo Env environment ready!", "message_length": 0}'
        observation, reward, is_over, _, info = environment.step("hello")
        assert observation == '{"echoed_message": "hello", "message_length": 5}'
        assert (reward, is_over, info["is_success"]) == (pytest.approx(0.5), False, False)
    with pytest.raises(EnvironmentFault, match="does not answer"):  # the server has one session
        make(OpenEnvSettings(task=echo)).reset(seed=0)
    environment.settings = OpenEnvSettings(task=echo, observation_field="echoed_message")
    environment.reset(seed=0)
    assert environment.step("you")[0] == "you"
    environment.settings = OpenEnvSettings(task=echo, observation_field="board")
    with pytest.raises(EnvironmentFault, match="no field 'board' in its observations; it has echoed_message"):
        environment.reset(seed=0)


def test_a_game_is_won_and_lost(numbers):
    environment = make(OpenEnvSettings(task=numbers, observation_field="text"))
    for seed in range(8):
        assert environment.reset(seed=seed)[0] == "Guess a number from 1 to 20."
        least, most, is_over = 1, 20, False
        while not is_over:
            guess = (least + most) // 2
            hint, reward, is_over, _, info = environment.step(str(guess))
            least, most = (guess + 1, most) if hint == "higher" else (least, guess - 1)
        assert (hint, reward, info["is_success"]) == ("right", 1.0, True)
    environment.reset(seed=0)
    steps = [environment.step("none") for _ in range(5)]
    assert [is_over for _, _, is_over, _, _ in steps] == [False] * 4 + [True]
    assert not environment.is_success
    with pytest.raises(EnvironmentFault, match="the episode has ended"):
        environment.step("1")


def test_seeded_server_is_replayable(numbers):
    settings = OpenEnvSettings(task=numbers, observation_field="text")
    assert make(settings).is_replayable
    assert check(settings) == []


def test_stopped_server_raises_environment_fault(tmp_path):
    port = free_port()
    with served([Path(__file__).with_name("number_server.py"), str(port)], port, tmp_path) as address:
        environment = make(OpenEnvSettings(task=address, timeout_s=5.0))
        environment.reset(seed=0)
    with pytest.raises(EnvironmentFault, match=f"openenv/{address} does not answer"):
        environment.step("1")
