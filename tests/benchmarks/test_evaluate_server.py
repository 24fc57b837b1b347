"""Memory and time of an evaluation of a server's model: 1,000 and 10,000 episodes, one request in ten fails."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.openai_server import Server

pytestmark = pytest.mark.benchmark

PROGRAM = """
import json, resource, sys, time, starpo
url, store, states = sys.argv[1], sys.argv[2], int(sys.argv[3])
started = time.monotonic()
result = starpo.evaluate(
    f"a-model@{url}", "Bandit", {"rollout.openai.max_concurrent": 32},
    num_prompts=states, samples_per_prompt=10, store=store, quiet=True,
)
peak, seconds = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, time.monotonic() - started
episodes = result.leaderboard[0].scores["bandit"].num_episodes
print(json.dumps({"episodes": episodes, "errors": result.num_errors, "peak_mb": peak, "seconds": seconds}))
"""


def test_evaluation_of_server_in_little_memory(tmp_path: Path) -> None:
    pytest.importorskip("openai")
    measured = []
    for states in (100, 1_000):
        with Server() as server:
            server.say = "<think>I try.</think><answer>Phoenix</answer>"
            server.requests = Counted()
            server.script = ["500" if n % 10 == 3 else "ok" for n in range(20 * states)]
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
            command = [sys.executable, "-c", PROGRAM, server.url, str(tmp_path / "store"), str(states)]
            environment = {**os.environ, "NO_PROXY": "127.0.0.1", "STARPO_WANDB_MODE": "disabled"}
            answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            server.shutdown()
        facts = json.loads(answer.stdout.splitlines()[-1])
        measured.append(facts)
        sizes = f"{facts['peak_mb']:.0f} MB, {facts['seconds']:.0f} s, {server.requests.number:,} requests"
        print(f"\n{facts['episodes']:,} episodes: {sizes}")
        assert (facts["episodes"], facts["errors"]) == (10 * states, 0)
    few, many = measured
    print(f"a further 9,000 episodes: {many['peak_mb'] - few['peak_mb']:.0f} MB")


class Counted(list):
    """Counts what is appended, and keeps none of it."""

    number = 0

    def append(self, item: object) -> None:
        self.number += 1
