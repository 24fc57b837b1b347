"""Timing what a run repeats, each operation as wide and as concurrent as in the run, for a few seconds each.

settings, a policy's folder, contexts --measure_speed--> Speed
"""

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from starpo.ragen.agents.policy.load import load_policy
from starpo.ragen.agents.rollout.engine import Request
from starpo.ragen.agents.rollout.torch_engine import TorchEngine
from starpo.ragen.config.device import Device
from starpo.ragen.config.rollout import SamplingConfig
from starpo.ragen.config.runtime import Runtime
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.config.update import LoraConfig, OptimiserConfig
from starpo.ragen.learning.examples import Batch
from starpo.ragen.learning.learners.adapters import add_adapters, shape_of
from starpo.ragen.learning.learners.batches import MicroBatch, micro_batches
from starpo.ragen.learning.learners.micro_batch_runner import MicroBatchRunner
from starpo.ragen.learning.learners.optimisers import ModelOptimiser
from starpo.ragen.learning.learners.scoring import ResponseScores, row_tokens
from starpo.ragen.learning.learners.supervised import NUM_PARTS, in_prefix_rows
from starpo.ragen.learning.learners.trained_model import TorchModel
from starpo.ragen.trial.pace import Sample, Speed, prefix_tree

_STEPS = 4
"""Timed decoding steps."""
_MAX_ROWS = 256
"""Rows that are decoded at most; with more, a step takes longer in proportion."""
_CPU_TOKENS = 512
"""Tokens of a timed micro-batch on a CPU at most, where a larger one is no faster per token."""


def measure_speed(config: StarPOConfig, folder: str, sample: Sample, lessons: Sample | None) -> Speed:
    """Measure how fast this machine plays and trains a policy.

    Args:
        config: Settings of the run.
        folder: Local folder of the policy.
        sample: Episodes like those of a rollout, about a shard of them.
        lessons: A batch of fine-tuning; None without.
    """
    rollout, update = config.rollout, config.update
    of_run = math.ceil(rollout.num_groups / rollout.shard_groups)
    num_shards = 1 if Device.here().is_gpu else min(Runtime.current().threads, of_run)
    read_s, step_s, row_s = _Playing(rollout.sampling, folder, sample, num_shards).seconds()
    tuned_s = tuned_step_s = 0.0
    tuning = config.policy.fine_tuning if config.policy.type == "pretrained" else None
    if tuning is not None and lessons is not None:
        training = _Training(folder, tuning.lora, tuning.dtype, NUM_PARTS)
        budget, batch = training.budget(tuning.micro_batch_tokens), Batch(lessons.contexts)
        num_parts = 1 if training.device.is_gpu else NUM_PARTS
        tuned_s, tuned_step_s = training.seconds(in_prefix_rows(budget, training.row_tokens, num_parts)(batch))
        del training
    training = _Training(folder, update.lora, update.dtype, Runtime.current().threads)
    budget, everything = training.budget(update.micro_batch_tokens), np.arange(len(sample.contexts))
    batches = micro_batches(Batch(sample.contexts), everything, budget, row_tokens=training.row_tokens)
    trained_s, _ = training.seconds(batches)
    return Speed(read_s, step_s, row_s, num_shards, trained_s, tuned_s, tuned_step_s, training.row_tokens)


class _Playing:
    """The first prompts of a shard, answered by as many sessions at a time as play in the run.

    Two engines have weights of their own, as workers do: they do not find them in each other's cache.
    """

    def __init__(self, sampling: SamplingConfig, folder: str, sample: Sample, num_shards: int) -> None:
        self._sampling, self._num_shards = sampling, num_shards
        self._engines = [TorchEngine(num_threads=1) for _ in range(min(2, num_shards))]
        for engine in self._engines:
            engine.load(folder, "trial")
        self._prompts = [
            context.token_ids[: context.response_mask.argmax()].tolist()
            for context in sample.contexts[: min(_MAX_ROWS, sample.num_episodes)]
        ]

    def seconds(self) -> tuple[float, float, float]:
        """Return the seconds of a token read, of a step, and of a row of it, as in `Speed`."""
        self._time(1, 1)  # memory is fetched, on a GPU kernels are loaded
        wide, narrow = len(self._prompts), 1
        read_s, num_read = self._time(wide, 1)
        wide_s, num_wide = self._time(wide, 1 + _STEPS)
        step_s = (self._time(narrow, 1 + _STEPS)[0] - self._time(narrow, 1)[0]) / _STEPS
        rows = (num_wide - num_read) / _STEPS
        row_s = max(0.0, ((wide_s - read_s) / _STEPS - step_s) / (rows - 1)) if rows > 1 else 0.0
        return read_s / num_read, max(0.0, step_s - row_s), row_s

    def _time(self, num_rows: int, num_tokens: int) -> tuple[float, int]:
        """Return the seconds in which all sessions answer with this number of tokens, and the tokens that one read."""
        sampling = self._sampling.model_copy(update={"max_response_tokens": num_tokens})
        random = np.random.default_rng(0)
        requests = [
            Request(str(row), prompt, random.random(num_tokens), row)
            for row, prompt in enumerate(self._prompts[:num_rows])
        ]
        sessions = [
            self._engines[shard % len(self._engines)].session(sampling, ()) for shard in range(self._num_shards)
        ]
        with ThreadPoolExecutor(self._num_shards) as pool:
            began = time.monotonic()
            answers = list(pool.map(lambda session: session.generate(requests), sessions))
            seconds = time.monotonic() - began
        read = [
            np.array([*request.prompt_ids, *answer.token_ids[:-1]])
            for request, answer in zip(requests, answers[0], strict=True)
        ]
        return seconds, len(prefix_tree(read))


class _Training:
    """A policy that is trained as in the run, with adapters if that trains adapters."""

    def __init__(self, folder: str, lora: LoraConfig | None, dtype: str, num_threads: int) -> None:
        self.device = Device.here()
        model, _ = load_policy(folder, dtype if lora else "float32")
        self.row_tokens = row_tokens(model)
        if lora is not None:
            add_adapters(model, shape_of(lora, model.base_model), lora.seed)
        model.to(self.device.kind)  # type: ignore[arg-type]
        self._policy = TorchModel(ResponseScores(model), ModelOptimiser(model, OptimiserConfig()))
        self._runner = MicroBatchRunner(self.device, num_threads, dtype)

    def budget(self, token_budget: int) -> int:
        """Return the tokens of a micro-batch that is timed."""
        return token_budget if self.device.is_gpu else min(token_budget, _CPU_TOKENS)

    def seconds(self, batches: Sequence[MicroBatch]) -> tuple[float, float]:
        """Return the seconds per token of a forward and backward pass, all threads together, and of a step."""
        num_threads = self._runner.num_threads
        timed = [batches[index % len(batches)].to(self._runner.device) for index in range(2 * num_threads)]
        with self._runner.alone():
            self._policy.accumulate(self._loss, timed[:num_threads], self._runner)  # memory is fetched, kernels loaded
            self._policy.step(0.0)  # makes its states
            seconds = _seconds(lambda: self._policy.accumulate(self._loss, timed, self._runner))
        with self._runner.alone(NUM_PARTS):
            step_s = _seconds(lambda: self._policy.step(0.0))
        return seconds / sum(batch.token_ids_ST.numel() for batch in timed), step_s

    def _loss(self, batch: MicroBatch) -> tuple[Tensor, Tensor]:
        (logprobs,) = self._policy(batch, 1.0)
        loss = -logprobs.sum()
        return loss, loss.detach()


def _seconds(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    if Device.here().is_gpu:
        torch.cuda.synchronize()
    return time.monotonic() - began
