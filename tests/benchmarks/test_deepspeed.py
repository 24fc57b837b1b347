"""Appendix D at a small scale: memory and speed of full and LoRA updates, with the torch learner and with DeepSpeed.

Run with `-m benchmark -s`. Each learner runs in its own processes; DeepSpeed has two ranks. Memory is that of the
process that computes: the growth of its resident set from before the policy is loaded to its peak in the updates (on a
GPU, read the allocator's statistics instead). The checkpoint's size is printed too. Times are of the faster of two
updates with one thread per rank; on a machine with other work they are comparable only with each other.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from starpo.ragen.agents.policy.tiny import make_model, make_tokenizer
from starpo.ragen.config.deepspeed_learner import DeepSpeedConfig
from starpo.ragen.config.policy import TinyPolicy
from starpo.ragen.config.update import CriticConfig, LoraConfig, OptimiserConfig, UpdateConfig

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(1200)]

ADAMW = OptimiserConfig(learning_rate=1e-4)
BASE = UpdateConfig(
    num_minibatches=2, micro_batch_tokens=256, optimiser=ADAMW, critic=CriticConfig(optimiser=ADAMW)
)  # fmt: skip
SIZES = TinyPolicy(hidden_size=384, num_layers=6, num_heads=6, num_kv_heads=3, intermediate_size=1024)

WORK = """
import json, sys, threading, time
import numpy as np, psutil
from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.learning.learners.learner import UpdateContext
from starpo.ragen.learning.learners.data.trajectories import Segment, Trajectory
from starpo.ragen.core.lookup import load
from starpo.ragen.core.registry import LEARNERS

config = UpdateConfig.model_validate_json(sys.argv[1])
context = UpdateContext(iteration=0, num_iterations=20, seed=0, temperature=1.0, max_response_tokens=64)
rng = np.random.default_rng(0)
def trajectory(index):
    mask = np.arange(64) >= 32
    logprobs, turns = np.where(mask, -5.5, 0).astype(np.float32), np.where(mask, 0, -1)
    segment = Segment(rng.integers(0, 300, 64), mask, logprobs, turns, np.zeros(64, np.int8))
    value, turn = float(rng.normal()), (np.zeros(1, int), np.zeros(1, bool), np.ones(1))
    return Trajectory(f"t{index}", f"g{index // 4}", (segment,), np.array([value]), value, value, *turn)
trajectories = [trajectory(index) for index in range(16)]
learner = load(LEARNERS, config.learner)(config, num_threads=1)
me, peak, done = psutil.Process(), {}, threading.Event()
def watch():
    while not done.wait(0.02):
        for process in [me, *me.children(recursive=True)]:
            try:
                peak[process.pid] = max(peak.get(process.pid, 0), process.memory_info().rss)
            except psutil.NoSuchProcess:
                pass
if config.learner == "deepspeed":
    learner._start()
    pids = [connection.pid for connection in learner._ranks._connections.values()]
else:
    import torch, peft
    from starpo.ragen.learning.learners import torch_learner
    pids = [me.pid]
before = max(psutil.Process(pid).memory_info().rss for pid in pids)
threading.Thread(target=watch, daemon=True).start()
learner.load(sys.argv[2], "start", None)
seconds = []
for _ in range(2):
    start = time.perf_counter()
    learner.update(trajectories, context)
    seconds.append(time.perf_counter() - start)
done.set()
learner.save(sys.argv[3], "end")
if config.learner == "deepspeed":
    learner.close()
print(json.dumps({"memory": max(peak[pid] for pid in pids) - before, "seconds": min(seconds)}))
"""


def cases() -> dict[str, UpdateConfig]:
    lora = BASE.model_copy(update={"lora": LoraConfig(rank=16, alpha=16)})
    made = {"torch, full": BASE, "torch, LoRA": lora}
    for name, config in (("full", BASE), ("LoRA", lora)):
        for stage in (1, 2, 3):
            spec = DeepSpeedConfig(num_ranks=2, zero_stage=stage)
            made[f"deepspeed 2 ranks, ZeRO {stage}, {name}"] = config.model_copy(
                update={"learner": "deepspeed", "deepspeed": spec}
            )
    return made


def test_memory_and_throughput(tmp_path: Path) -> None:
    pytest.importorskip("deepspeed")
    pytest.importorskip("peft")
    tokenizer = make_tokenizer()
    model = make_model(SIZES, tokenizer)
    model.save_pretrained(tmp_path / "policy")
    tokenizer.save_pretrained(tmp_path / "policy")
    print(f"\n{model.num_parameters() / 1e6:.1f}M parameters, policy and critic, 16 trajectories of 64 tokens, float32")
    print(f"load {os.getloadavg()[0]:.1f} on {psutil.cpu_count()} cores; one thread a process")
    print(f"{'learner':36} {'memory MB':>10} {'tokens/s':>9} {'checkpoint MB':>14}")
    memory = {}
    for index, (name, config) in enumerate(cases().items()):
        output = tmp_path / f"out-{index}"
        command = [sys.executable, "-c", WORK, config.model_dump_json(), str(tmp_path / "policy"), str(output)]
        done = subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=300, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )
        result = json.loads(done.stdout.splitlines()[-1])
        memory[name] = result["memory"]
        size = sum(file.stat().st_size for file in output.iterdir())
        print(
            f"{name:36} {result['memory'] / 2**20:10.0f} {16 * 64 / result['seconds']:9.0f} {size / 2**20:14.1f}",
            flush=True,
        )
    assert memory["torch, LoRA"] < 0.6 * memory["torch, full"]
