"""SmolLM2-135M in float32 and bfloat16 on a processor that multiplies in both, alternating in one process: decoding,
forward and backward pass, and the differences of log-probs. Seconds are the processor's, which other work leaves as
they are.

THREADS=1 pytest -m benchmark tests/benchmarks/test_cpu_precision.py -s
"""

import os
import statistics
import time

import numpy as np
import pytest
import torch

from starpo.ragen.agents.policy.load import load_policy
from starpo.ragen.agents.rollout.engine import Request, Response
from starpo.ragen.agents.rollout.torch.engine import TorchEngine
from starpo.ragen.config.device import Device
from starpo.ragen.config.policy import FineTuning
from starpo.ragen.config.processor import Processor
from starpo.ragen.config.rollout import SamplingConfig
from starpo.ragen.config.update import LoraConfig
from starpo.ragen.core.seeding import token_uniforms
from starpo.ragen.learning.examples import Batch, Example
from starpo.ragen.learning.learners.data.batches import MicroBatch
from starpo.ragen.learning.learners.micro_batch_runner import MicroBatchRunner
from starpo.ragen.learning.learners.models.optimisers import ModelOptimiser
from starpo.ragen.learning.learners.models.scoring import ResponseScores, row_tokens, score
from starpo.ragen.learning.learners.models.trained_model import TorchModel
from starpo.ragen.learning.learners.supervised import accumulate_gradient, in_prefix_rows, prepare_policy

pytestmark = [
    pytest.mark.benchmark,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not Processor.here().multiplies_bfloat16, reason="needs a processor with AMX or AVX512-BF16"),
]
ROUNDS, THREADS = int(os.environ.get("ROUNDS", "5")), int(os.environ.get("THREADS", "1"))
DTYPES = ("float32", "bfloat16")
NUM_PROMPTS, MEMBERS, PROMPT_TOKENS, RESPONSE_TOKENS = 4, 24, 75, 32  # about a shard of preset bandit-smollm2
MICRO_BATCH_TOKENS = 2048


@pytest.fixture(scope="module")
def requests() -> list[Request]:
    prompts = np.random.default_rng(0).integers(1000, 40_000, (NUM_PROMPTS, PROMPT_TOKENS)).tolist()
    return [
        Request(f"{group}-{member}", prompt, token_uniforms(100 * group + member, 0, RESPONSE_TOKENS), member)
        for group, prompt in enumerate(prompts)
        for member in range(MEMBERS)
    ]


@pytest.fixture(scope="module")
def responses(smollm2: str, requests: list[Request]) -> dict[str, list[Response]]:
    """Dtype -> responses, all of the same length, as no token ends them."""
    engines = {dtype: TorchEngine(THREADS, device="cpu", dtype=dtype) for dtype in DTYPES}
    seconds: dict[str, list[float]] = {dtype: [] for dtype in DTYPES}
    answers: dict[str, list[Response]] = {}
    for engine in engines.values():
        engine.load(smollm2, "k")
    for _ in range(ROUNDS):
        for dtype, engine in engines.items():
            session = engine.session(SamplingConfig(max_response_tokens=RESPONSE_TOKENS), [])
            started = time.process_time()
            answers[dtype] = list(session.generate(requests))
            seconds[dtype].append(time.process_time() - started)
    print_speeds(f"decoding, {len(requests)} at a time", NUM_PROMPTS * MEMBERS * RESPONSE_TOKENS, seconds)
    return answers


def print_speeds(what: str, num_tokens: int, seconds: dict[str, list[float]]) -> None:
    ratios = [old / new for old, new in zip(seconds["float32"], seconds["bfloat16"], strict=True)]
    speeds = ", ".join(f"{dtype} {num_tokens / statistics.median(each):.0f}" for dtype, each in seconds.items())
    print(
        f"{what}: tokens a second of a core: {speeds}; {statistics.median(ratios):.2f} times ({min(ratios):.2f} "
        f"to {max(ratios):.2f}); threads {THREADS}, {' '.join(Processor.here().instructions)}"
    )


def batch_of(requests: list[Request], responses: list[Response]) -> Batch:
    mask = np.arange(PROMPT_TOKENS + RESPONSE_TOKENS) >= PROMPT_TOKENS
    pairs = zip(requests, responses, strict=True)
    return Batch([Example(np.array([*request.prompt_ids, *answer.token_ids]), mask) for request, answer in pairs])


def policy(folder: str, tuning: FineTuning, frozen: torch.dtype) -> tuple[TorchModel, int]:
    model, _ = load_policy(folder, frozen)
    optimiser = prepare_policy(model, tuning)
    return TorchModel(ResponseScores(model), ModelOptimiser(model, optimiser)), row_tokens(model)


def micro_batches(batch: Batch, max_row_tokens: int) -> list[MicroBatch]:
    return in_prefix_rows(MICRO_BATCH_TOKENS, max_row_tokens, THREADS)(batch)


@pytest.mark.parametrize("lora", [None, LoraConfig(rank=16, alpha=16.0)], ids=["all weights", "LoRA"])
def test_bfloat16_passes_are_faster(
    smollm2: str, requests: list[Request], responses: dict[str, list[Response]], lora: LoraConfig | None
) -> None:
    seconds: dict[str, list[float]] = {dtype: [] for dtype in DTYPES}
    tuning, losses = FineTuning(lora=lora), {}
    frozen = {dtype: torch.float32 if lora is None else getattr(torch, dtype) for dtype in DTYPES}
    models = {dtype: policy(smollm2, tuning, frozen[dtype]) for dtype in DTYPES}
    batch = batch_of(requests[::6], responses["float32"][::6])
    for _ in range(ROUNDS):
        for dtype, (model, max_row_tokens) in models.items():
            runner = MicroBatchRunner(Device(), THREADS, dtype)
            parts = micro_batches(batch, max_row_tokens)
            started = time.process_time()
            with runner.alone():
                losses[dtype], _ = accumulate_gradient(model, batch, parts, runner)
            seconds[dtype].append(time.process_time() - started)
    num_tokens = len(batch.segments) * (PROMPT_TOKENS + RESPONSE_TOKENS)
    what = "all weights" if lora is None else f"LoRA of rank {lora.rank}"
    print_speeds(f"forward and backward, {what}", num_tokens, seconds)
    assert losses["bfloat16"] == pytest.approx(losses["float32"], rel=2e-2)
    assert statistics.median(seconds["bfloat16"]) < statistics.median(seconds["float32"])


def test_logprobs_agree_within_bfloat16(
    smollm2: str, requests: list[Request], responses: dict[str, list[Response]]
) -> None:
    model, max_row_tokens = policy(smollm2, FineTuning(), torch.float32)
    gaps = {}
    for played, answers in responses.items():
        batch = batch_of(requests, answers)
        sampled_N = np.concatenate([answer.logprobs for answer in answers])
        for learned in DTYPES:
            runner = MicroBatchRunner(Device(), THREADS, learned)
            scores = score(model, micro_batches(batch, max_row_tokens), len(sampled_N), 1.0, runner)
            gap_N = np.abs(scores.logprobs_N.numpy() - sampled_N)
            gaps[played, learned] = gap_N.mean()
            print(f"engine {played}, learner {learned}: {gap_N.mean():.1e} nats on average, at most {gap_N.max():.1e}")
    assert gaps["float32", "float32"] < 1e-4
    assert max(gaps.values()) < 0.1
