"""A run whose episodes programs play, killed by SIGKILL while they play: nothing stays, and the result is the same."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from starpo.ragen.agents.policy.tiny import make_model
from starpo.ragen.agents.policy.tokenizer import make_tokenizer
from starpo.ragen.config.policy import TinyPolicy
from starpo.ragen.store import Store
from tests.integration.run_digests import Digests, digests

pytestmark = pytest.mark.timeout(900)

ROOT = Path(__file__).parents[2]
AGENT = """
import os
from pathlib import Path

from openai import OpenAI

CLIENT = OpenAI(api_key="each episode has its own")
CLIENT.chat.completions  # imported once


def tasks():
    from starpo.ragen.methods.programs import player

    player.LINGER_S = 600.0  # full rounds: log-probs are then equal bit for bit, however fast programs are
    return [{"number": number} for number in range(40)]


def play(task):
    with Path(os.environ["PLAYED"]).open("a") as played:
        played.write("1\\n")
    client = CLIENT.with_options(api_key=os.environ["OPENAI_API_KEY"], base_url=os.environ["OPENAI_BASE_URL"])
    messages, length = [{"role": "user", "content": f"say {task['number']}"}], 0
    for _ in range(2):
        said = client.chat.completions.create(model="policy", messages=messages).choices[0].message.content
        messages += [{"role": "assistant", "content": said}, {"role": "user", "content": "again"}]
        length += len(said)
    return length % 5
"""
SETTINGS = """
extends = ["smoke"]
iterations = 2

[environment]
type = "program"
command = "agent:play"
tasks = "agent:tasks"
variables = ["PLAYED"]

[policy]
type = "pretrained"
name_or_path = "policy"

[rollout]
max_response_tokens = 16

[evaluation]
num_prompts = 4
"""
NUM_PLAYED = 2 * 16 + 3 * 4
"""Episodes of the run: two rollouts, and three times the panel."""


class Forker:
    """Process that forks runs, one at a time (`forked_commands.py`)."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("forked_commands.py"))],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, **order: Any) -> int:
        """Start a run and return its process id."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def wait(self) -> int:
        """Wait for the end of the run and return its exit status."""
        return self._answer()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)

    def _answer(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())


@pytest.fixture(scope="module")
def forker() -> Iterator[Forker]:
    process = Forker()
    yield process
    process.close()


class Runs:
    """Starts runs in this folder, where their settings and their program lie."""

    def __init__(self, folder: Path, forker: Forker) -> None:
        self.folder, self.played, self.scratch = folder, folder / "played", folder / "scratch"
        self._forker = forker
        self.scratch.mkdir(parents=True)
        (folder / "agent.py").write_text(AGENT)
        (folder / "mine.toml").write_text(SETTINGS)
        tokenizer = make_tokenizer()
        config = TinyPolicy(hidden_size=16, num_layers=1, num_heads=2, num_kv_heads=1, intermediate_size=16)
        make_model(config, tokenizer).save_pretrained(folder / "policy")
        tokenizer.save_pretrained(folder / "policy")

    def start(self, store: str, num_threads: int) -> int:
        """Start, or go on; return the process id."""
        variables = {
            "PYTHONPATH": os.pathsep.join((str(ROOT), str(self.folder))),
            "PLAYED": str(self.played),
            "TMPDIR": str(self.scratch),
            "STARPO_THREADS": str(num_threads),
            "STARPO_STATE_DIR": str(self.folder / "state"),
        }
        arguments = ["train", "mine.toml", "--local", "--run", "mine", "--store", str(self.folder / store)]
        return self._forker.start(
            arguments=arguments, folder=str(self.folder), variables=variables, output=str(self.folder / "output")
        )

    def finish(self, store: str, num_threads: int) -> Digests:
        """Run to the end."""
        self.start(store, num_threads)
        assert self._forker.wait() == 0, (self.folder / "output").read_text()[-3000:]
        return digests(Store(str(self.folder / store)), "mine")

    def num_played(self) -> int:
        """Number of episodes that have begun."""
        return len(self.played.read_text().splitlines()) if self.played.exists() else 0

    def programs(self) -> list[psutil.Process]:
        """Processes that play, or that import what plays."""
        mark = f"PLAYED={self.played}".encode()
        return [one for one in _with_environment(mark) if "warden.py" in " ".join(one.cmdline())]


def _with_environment(mark: bytes) -> Iterator[psutil.Process]:
    for one in psutil.process_iter():
        try:
            if mark in Path(f"/proc/{one.pid}/environ").read_bytes():
                yield one
        except OSError:
            continue


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, forker: Forker) -> Runs:
    return Runs(tmp_path_factory.mktemp("runs") / "mine", forker)


@pytest.fixture(scope="module")
def undisturbed(runs: Runs) -> Digests:
    """What a run with one process gives; one with several gives the same."""
    made = runs.finish("undisturbed", 1)
    assert runs.num_played() == NUM_PLAYED
    return made


FIRST, SECOND = 0.25, 0.75
"""Shares of the episodes that have begun, in the first rollout and in the second one."""


@pytest.mark.parametrize(
    ("victim", "num_threads", "shares"),
    [
        ("flow", 1, (FIRST,)),
        pytest.param("player", 2, (SECOND,), marks=pytest.mark.thorough),
        pytest.param("flow-twice", 1, (FIRST, SECOND), marks=pytest.mark.thorough),
        pytest.param("player-twice", 2, (FIRST, SECOND), marks=pytest.mark.thorough),
    ],
)
def test_run_killed_during_programs_same_result(victim, num_threads, shares, runs, forker, undisturbed):
    for share in shares:
        runs.played.unlink(missing_ok=True)
        run = runs.start(victim, num_threads)
        while runs.num_played() < share * NUM_PLAYED and psutil.pid_exists(run):
            time.sleep(0.005)
        player = next(
            parent for one in runs.programs() if "warden.py" not in " ".join((parent := one.parent()).cmdline())
        )
        os.kill(run if "flow" in victim else player.pid, signal.SIGKILL)
        assert forker.wait() != 0
    assert runs.finish(victim, num_threads) == undisturbed
    stop_at = time.monotonic() + 20
    while (left := runs.programs()) and time.monotonic() < stop_at:
        time.sleep(0.05)
    assert not left
    assert not list(runs.scratch.glob("ragen-program-*"))
