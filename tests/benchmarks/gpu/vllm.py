"""The rollout engine on vLLM beside vLLM alone, in the environment that has vLLM (`vllm_throughput.py`)."""

import json
import statistics
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import torch

from starpo.ragen.agents.policy.load import load_policy
from starpo.ragen.config.vllm_engine import VLLMEngineConfig
from starpo.ragen.core.errors import MissingPackageError
from tests.benchmarks.gpu import rollout
from tests.benchmarks.gpu.report import Report
from tests.benchmarks.gpu.setup import Setup

PROGRAM = Path(__file__).parents[1] / "vllm_throughput.py"
GPU_SHARE = 0.3
REPEATS = 2


def measure(report: Report, setup: Setup) -> None:
    """Measure, or say what is missing."""
    if not torch.cuda.is_available():
        report.add("engine vLLM", "needs CUDA", "left out")
        return
    try:
        interpreter = VLLMEngineConfig().python()
    except MissingPackageError as error:
        report.add("engine vLLM", str(error), "left out")
        return
    turns = setup.out / "vllm.parquet"
    settings = {
        "num_groups": setup.num_groups,
        "group_size": setup.group_size,
        "max_response_tokens": setup.max_response_tokens,
        "max_context_tokens": rollout.MAX_CONTEXT_TOKENS,
        "repeats": REPEATS,
        "rooms": rollout.ROOMS,
        "agent": rollout.agent_of(setup),
        "engine": {"gpu_memory_utilization": GPU_SHARE},
        "turns": str(turns),
    }
    command = [interpreter, str(PROGRAM), setup.model, json.dumps(settings)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=Path(__file__).parents[3])
    for name, speeds in json.loads(done.stdout.splitlines()[-1]).items():
        report.add(f"engine vllm, {name}", round(statistics.median(speeds)), "response tokens/s")
    model = load_policy(setup.model)[0].cuda()
    report.add("gap of engine vllm to transformers in float32", rollout.gap(pq.read_table(turns), model), "nats")
