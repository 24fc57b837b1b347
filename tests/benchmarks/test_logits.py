"""Update of a policy with a large vocabulary: logits computed for some positions at a time, against all at once."""

import json
import os
import statistics
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.benchmark

VOCABULARY = 50_000
ROUNDS = 3

PROGRAM = """
import json, sys, tempfile, time
from pathlib import Path
import numpy as np, torch
from transformers import Qwen2Config, Qwen2ForCausalLM
from starpo.flows.presets import preset
from starpo.ragen.agents.policy.tiny import make_tokenizer
from starpo.ragen.learning.learners.models import scoring
from starpo.ragen.learning.learners.learner import UpdateContext
from starpo.ragen.learning.learners.torch_learner import TorchLearner
from starpo.ragen.learning.learners.data.trajectories import Segment, Trajectory

vocabulary = int(sys.argv[1])
if sys.argv[2] == "at once":
    scoring._LOGITS_AT_A_TIME = 2**60

def trajectory(index, length=512):
    rng, mask, value = np.random.default_rng(index), np.arange(length) >= length // 2, float(index % 2)
    logprobs, turns = np.where(mask, -3.0, 0.0).astype(np.float32), np.where(mask, 0, -1)
    segment = Segment(rng.integers(0, vocabulary, length), mask, logprobs, turns, np.zeros(length, np.int8))
    turn = np.zeros(1, int), np.zeros(1, bool), np.ones(1)
    return Trajectory(f"t{index}", f"g{index // 2}", (segment,), np.ones(1), value, value, *turn)

def memory(name):
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024

overrides = {"num_minibatches": 1, "micro_batch_tokens": 4096, "kl_coefficient": 0.0, "optimiser.type": "adamw"}
config = preset("smoke", {f"update.{name}": value for name, value in overrides.items()})
with tempfile.TemporaryDirectory() as folder:
    torch.manual_seed(0)
    shape = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 4}
    Qwen2ForCausalLM(
        Qwen2Config(vocab_size=vocabulary, num_key_value_heads=2, tie_word_embeddings=True, **shape)
    ).save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    learner = TorchLearner(config.update, num_threads=1)
    learner.load(folder, "first", None)
    Path("/proc/self/clear_refs").write_text("5")  # the peak is now what is held
    held, started = memory("VmRSS"), time.process_time()
    metrics = learner.update([trajectory(i) for i in range(16)], UpdateContext(0, 10, 5, 1.0, 256)).metrics
    seconds = time.process_time() - started
    norm = metrics["update/gradient_norm"]
    print(json.dumps({"peak_bytes": memory("VmHWM") - held, "seconds": seconds, "gradient_norm": norm}))
"""


def updated(how: str) -> dict[str, Any]:
    env = {**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": "65536"}
    command = [sys.executable, "-c", PROGRAM, str(VOCABULARY), how]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.timeout(900)
def test_update_memory_independent_of_logits() -> None:
    rounds = [(updated("at once"), updated("at a time")) for _ in range(ROUNDS)]
    for name, unit, scale in (("peak_bytes", "MB", 1e-6), ("seconds", "s of processor time", 1.0)):
        whole, parts = (
            statistics.median(measured[name] * scale for measured in side) for side in zip(*rounds, strict=True)
        )
        print(f"\n{whole:.4g} {unit} at once, {parts:.4g} some positions at a time")
    whole, parts = rounds[0]
    assert parts["gradient_norm"] == pytest.approx(whole["gradient_norm"], rel=1e-5)
    assert parts["peak_bytes"] < 0.6 * whole["peak_bytes"]
