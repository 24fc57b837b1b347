"""A run whose episodes programs play, killed by SIGKILL while they play: nothing stays, and the result is the same."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

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


class Runs:
    """Starts a run in this folder, where its settings and its program lie."""

    def __init__(self, folder: Path, num_threads: int) -> None:
        self.folder, self.played, self.scratch = folder, folder / "played", folder / "scratch"
        self._num_threads = num_threads
        self.scratch.mkdir()
        (folder / "agent.py").write_text(AGENT)
        (folder / "mine.toml").write_text(SETTINGS)
        tokenizer = make_tokenizer()
        config = TinyPolicy(hidden_size=16, num_layers=1, num_heads=2, num_kv_heads=1, intermediate_size=16)
        make_model(config, tokenizer).save_pretrained(folder / "policy")
        tokenizer.save_pretrained(folder / "policy")

    def start(self, store: str) -> subprocess.Popen[bytes]:
        """Start, or go on."""
        environment = {
            "PYTHONPATH": os.pathsep.join((str(ROOT), str(self.folder))),
            "PLAYED": str(self.played),
            "TMPDIR": str(self.scratch),
            "STARPO_THREADS": str(self._num_threads),
            "STARPO_STATE_DIR": str(self.folder / "state"),
        }
        command = [sys.executable, "-m", "starpo.flows.cli", "train", "mine.toml", "--local"]
        output = (self.folder / "output").open("ab")
        return subprocess.Popen(
            [*command, "--run", "mine", "--store", str(self.folder / store)],
            cwd=self.folder, env={**os.environ, **environment}, stdout=output, stderr=output,
        )  # fmt: skip

    def finish(self, store: str) -> Digests:
        """Run to the end."""
        assert self.start(store).wait(timeout=400) == 0, (self.folder / "output").read_text()[-3000:]
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


@pytest.mark.parametrize(("victim", "num_threads"), [("flow", 1), ("player", 2)])
def test_run_killed_during_programs_same_result(victim, num_threads, tmp_path):
    runs = Runs(tmp_path, num_threads)
    expected = runs.finish("undisturbed")
    assert runs.num_played() == NUM_PLAYED
    for share in (0.25, 0.75):  # in the first rollout, and in the second one
        runs.played.unlink(missing_ok=True)
        run = runs.start("killed")
        while runs.num_played() < share * NUM_PLAYED and run.poll() is None:
            time.sleep(0.005)
        player = next(
            parent for one in runs.programs() if "warden.py" not in " ".join((parent := one.parent()).cmdline())
        )
        os.kill(run.pid if victim == "flow" else player.pid, signal.SIGKILL)
        run.wait(timeout=400)
    assert runs.finish("killed") == expected
    stop_at = time.monotonic() + 20
    while (left := runs.programs()) and time.monotonic() < stop_at:
        time.sleep(0.05)
    assert not left
    assert not list(runs.scratch.glob("ragen-program-*"))
