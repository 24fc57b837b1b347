"""vLLM on the CPU beside the torch engine: same policy, same episodes, one thread each. Printed, no target on a CPU.

make vllm && pytest -m benchmark -s tests/benchmarks/test_vllm.py
"""

import json
import os
import statistics
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from ragen.config.agent import AgentConfig
from ragen.config.policy import TinyPolicy
from ragen.config.rollout import RolloutConfig
from ragen.envs.sokoban import SokobanSettings
from ragen.imitation import imitate
from ragen.rollout.engine_spec import EngineSpec
from ragen.rollout.job import RolloutJob
from ragen.rollout.shards import make_episodes, play_shards
from ragen.rollout.usage import take_usage
from ragen.rollout.worker_pool import WorkerPool
from ragen.seeding import derive_seed

REPEATS = 3
SHARDS = make_episodes([(f"g{group}", derive_seed("benchmark", group)) for group in range(12)], 16, 12)
ROOMS = SokobanSettings(observation="compact", generator="distance", min_solution=6, max_solution=10)
AGENT = AgentConfig(prompt="state", context="full", should_show_reward=False)
ROLLOUT = RolloutConfig(engine="vllm", max_response_tokens=32, max_context_tokens=1024)
UPDATES = """
import json, sys, time
from ragen.rollout.vllm_engine import VLLMEngine
engine = VLLMEngine(num_threads=1, max_context_tokens=1024)
engine.load(sys.argv[1], "first")
times = []
for number in range(10):
    started = time.perf_counter()
    engine.load(sys.argv[1], f"again-{number}")
    times.append((1000 * engine.update_s, 1000 * (time.perf_counter() - started)))
print(json.dumps(times))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A policy that has learnt the format, so that responses end where they should."""
    folder = tmp_path_factory.mktemp("policy")
    imitate(TinyPolicy(), ROOMS, AGENT, ROLLOUT.max_response_tokens, frozenset(), folder)
    return str(folder)


@pytest.mark.benchmark
@pytest.mark.timeout(1800)
def test_vllm_beside_the_torch_engine(vllm_interpreter, folder):
    job = RolloutJob(folder, "key", ROOMS, AGENT, ROLLOUT.sampling, ROLLOUT.max_context_tokens)
    players = {"torch": WorkerPool("torch", 1), "vllm": WorkerPool(EngineSpec.of(ROLLOUT), 1, vllm_interpreter)}
    speeds, usage = {name: [] for name in players}, {}
    for number in range(REPEATS + 1):  # the first of each is not counted
        for name, player in players.items():
            started = time.perf_counter()
            # Another key is a fresh checkpoint: no prefix is left from the repetition before.
            turns, usage[name] = take_usage(play_shards(player, replace(job, checkpoint_key=f"key-{number}"), SHARDS))
            elapsed_s = time.perf_counter() - started
            speeds[name].append(sum(map(len, turns["response_ids"].to_pylist())) / elapsed_s)
    found = usage["vllm"]["cached_prompt_tokens"] / usage["vllm"]["prompt_tokens"]
    print(f"\n{len(SHARDS[0])} episodes, {turns.num_rows} turns, one thread each, load {os.getloadavg()[0]:.1f}")
    for name, values in speeds.items():
        print(
            f"{name:6} {statistics.median(values[1:]):7.0f} response tokens/s {[round(value) for value in values[1:]]}"
        )
    print(f"vLLM found {100 * found:.0f}% of its prompt tokens in its prefix cache")
    assert turns.num_rows > len(SHARDS[0])


@pytest.mark.benchmark
def test_weights_are_updated_within_a_tenth_of_a_second(vllm_interpreter, folder):
    done = subprocess.run(
        [vllm_interpreter, "-c", UPDATES, folder], capture_output=True, text=True, cwd=Path(__file__).parents[2]
    )
    assert done.returncode == 0, done.stderr[-3000:]
    times = json.loads(done.stdout.splitlines()[-1])
    update_ms, whole_ms = (statistics.median(column) for column in zip(*times, strict=True))
    print(f"\nupdate {update_ms:.0f} ms, with probe {whole_ms:.0f} ms, load {os.getloadavg()[0]:.1f}")
    assert update_ms < 100
