"""vLLM against the torch engine, and the rollout engine on vLLM against vLLM alone: same policy, same token counts.

make vllm && pytest -m benchmark -s tests/benchmarks/test_vllm.py                    on the CPU: printed, no targets
make vllm && pytest -m "benchmark and gpu" -s tests/benchmarks/test_vllm.py          a policy of 0.5B on a GPU
"""

import json
import os
import statistics
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from starpo.ragen.agents.policy.tokenizer import make_tokenizer
from starpo.ragen.agents.rollout.costs import take_usage
from starpo.ragen.agents.rollout.engine_spec import EngineSpec
from starpo.ragen.agents.rollout.job import RolloutJob
from starpo.ragen.agents.rollout.pools.worker_pool import WorkerPool
from starpo.ragen.agents.rollout.shards import make_episodes, play_shards
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.policy import TinyPolicy
from starpo.ragen.config.rollout import RolloutConfig
from starpo.ragen.core.seeding import derive_seed
from starpo.ragen.envs.sokoban.environment import SokobanSettings
from starpo.ragen.learning.imitation import imitate

REPEATS = 3
SHARDS = make_episodes([(f"g{group}", derive_seed("benchmark", group)) for group in range(12)], 16, 12)
ROOMS = SokobanSettings(observation="compact", generator="distance", min_solution=6, max_solution=10)
AGENT = AgentConfig(prompt="state", context="full", should_show_reward=False)
ROLLOUT = RolloutConfig(engine="vllm", max_response_tokens=64, max_context_tokens=1024)
UPDATES = """
import json, sys, time
from starpo.ragen.agents.rollout.vllm.engine import VLLMEngine
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
    """Folder of a policy that has learnt the format, so that responses end properly."""
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
            # Another key is a new checkpoint, so no cached prefix is left from the previous repetition.
            turns, usage[name] = take_usage(play_shards(player, replace(job, checkpoint_key=f"key-{number}"), SHARDS))
            elapsed_s = time.perf_counter() - started
            speeds[name].append(sum(map(len, turns["response_ids"].to_pylist())) / elapsed_s)
    cached_share = usage["vllm"]["cached_prompt_tokens"] / usage["vllm"]["prompt_tokens"]
    print(f"\n{len(SHARDS[0])} episodes, {turns.num_rows} turns, one thread each, load {os.getloadavg()[0]:.1f}")
    for name, values in speeds.items():
        print(
            f"{name:6} {statistics.median(values[1:]):7.0f} response tokens/s {[round(value) for value in values[1:]]}"
        )
    print(f"vLLM found {100 * cached_share:.0f}% of its prompt tokens in its prefix cache")
    assert turns.num_rows > len(SHARDS[0])


def measured(interpreter, folder, **settings):
    """Print median tokens per second of the engine and of vLLM alone; return the share that the engine reaches."""
    program = str(Path(__file__).with_name("vllm_throughput.py"))
    done = subprocess.run(
        [interpreter, program, folder, json.dumps(settings)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr[-3000:]
    speeds = json.loads(done.stdout.splitlines()[-1])
    medians = {name: statistics.median(values) for name, values in speeds.items()}
    share = medians["engine"] / max(value for name, value in medians.items() if name != "engine")
    print()
    for name, values in speeds.items():
        print(f"{name:22} {medians[name]:9,.0f} response tokens/s {[round(value) for value in values]}")
    print(f"the engine reaches {share:.0%} of vLLM alone; load {os.getloadavg()[0]:.1f}")
    return share


@pytest.mark.benchmark
@pytest.mark.timeout(1800)
def test_the_engine_beside_vllm_alone(vllm_interpreter, folder):
    sizes = {"num_groups": 12, "group_size": 16, "max_response_tokens": 64, "max_context_tokens": 1024}
    assert measured(vllm_interpreter, folder, **sizes, repeats=REPEATS) > 0


@pytest.fixture(scope="module")
def half_a_billion(tmp_path_factory):
    """Folder of random weights in the shape of Qwen2.5-0.5B, with the embedded policy's tokenizer."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    folder, tokenizer = tmp_path_factory.mktemp("0.5B"), make_tokenizer()
    shape = Qwen2Config(
        vocab_size=151_936,
        hidden_size=896,
        num_hidden_layers=24,
        num_attention_heads=14,
        num_key_value_heads=2,
        intermediate_size=4864,
        max_position_embeddings=32_768,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="bfloat16",
    )
    Qwen2ForCausalLM(shape).bfloat16().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.mark.gpu
@pytest.mark.benchmark
@pytest.mark.timeout(1800)
def test_gpu_engine_speed_near_bare_vllm(vllm_interpreter, half_a_billion):
    sizes = {"num_groups": 16, "group_size": 16, "max_response_tokens": 200, "max_context_tokens": 4096}
    assert measured(vllm_interpreter, half_a_billion, **sizes, repeats=REPEATS) >= 0.6


@pytest.mark.gpu
@pytest.mark.benchmark
def test_half_billion_weights_updated_in_seconds(vllm_interpreter, half_a_billion):
    update_ms, _ = update_times_ms(vllm_interpreter, half_a_billion)
    assert update_ms < 2000


@pytest.mark.benchmark
def test_weights_updated_within_tenth_of_second(vllm_interpreter, folder):
    update_ms, _ = update_times_ms(vllm_interpreter, folder)
    assert update_ms < 100


def update_times_ms(interpreter, folder):
    """Return the median milliseconds of a weight update, without and with its probe."""
    done = subprocess.run(
        [interpreter, "-c", UPDATES, folder], capture_output=True, text=True, cwd=Path(__file__).parents[2]
    )
    assert done.returncode == 0, done.stderr[-3000:]
    times = json.loads(done.stdout.splitlines()[-1])
    update_ms, whole_ms = (statistics.median(column) for column in zip(*times, strict=True))
    print(f"\nupdate {update_ms:.0f} ms, with probe {whole_ms:.0f} ms, load {os.getloadavg()[0]:.1f}")
    return update_ms, whole_ms
