"""Supervised steps: the loop of imitation, the same in every learner and for any number of ranks.

    batches of examples -> micro-batches -> next-token loss on the responses -> step

Suffix: M response tokens of a micro-batch.
"""

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from starpo.ragen.agents.vision.image_table import ImageTable
from starpo.ragen.config.policy import FineTuning
from starpo.ragen.config.update import OptimiserConfig
from starpo.ragen.core.errors import LearnerError
from starpo.ragen.core.seeding import derive_seed
from starpo.ragen.learning.examples import Batch, Example
from starpo.ragen.learning.learners.data.batches import MicroBatch, micro_batches, rectangles
from starpo.ragen.learning.learners.data_parallel import DataParallelGroup, SingleProcess
from starpo.ragen.learning.learners.micro_batch_runner import MicroBatchRunner
from starpo.ragen.learning.learners.models.adapters import add_adapters, shape_of
from starpo.ragen.learning.learners.models.optimisers import learning_rate_factor
from starpo.ragen.learning.learners.models.trained_model import TrainedModel

NUM_PARTS = 2
"""Parts of a batch that are computed in parallel on a CPU, one thread each, and number of threads of the optimiser. A
constant, not the number of cores: the resulting policy must not depend on the machine's size."""

Split = Callable[[Batch], list[MicroBatch]]
"""Splits a batch into this process's micro-batches."""


def prepare_policy(model: PreTrainedModel, config: FineTuning) -> OptimiserConfig:
    """Prepare a policy for fine-tuning, in place: evaluation mode, and adapters if they are asked for.

    Returns:
        Settings of its optimiser and schedule.

    Raises:
        LearnerError: If the policy lacks a layer that the adapters name.
        MissingPackageError: If adapters are requested and PEFT is not installed.
    """
    if config.lora is not None:
        add_adapters(model, shape_of(config.lora, model.base_model), config.lora.seed)
    model.eval()  # dropout would draw from torch's global generator and make the result irreproducible
    schedule = OptimiserConfig(
        learning_rate=config.learning_rate,
        warmup_iterations=config.steps // 20,
        decay="linear",
        final_fraction=0.05,
    )
    if config.matrix_learning_rate is None:
        return schedule
    muon = {"type": "muon", "matrix_learning_rate": config.matrix_learning_rate, "momentum": 0.95, "beta2": 0.98}
    return schedule.model_copy(update=muon)


def learn(
    policy: TrainedModel,
    examples: Sequence[Example],
    steps: int,
    batch_size: int,
    seed: int,
    runner: MicroBatchRunner,
    split: Split,
    dp_group: DataParallelGroup | None = None,
    on_progress: Callable[[int, int], None] | None = None,
    images: ImageTable | None = None,
) -> dict[str, float]:
    """Train a policy in place.

    Args:
        policy: The policy, in evaluation mode: dropout would draw from torch's global generator.
        examples: What it imitates; the same on all ranks.
        steps: Number of batches, one step each.
        batch_size: Examples of a batch.
        seed: Seed of the order of the examples.
        runner: Runs the micro-batches.
        split: Splits a batch into this process's micro-batches.
        dp_group: Data-parallel group that holds the other micro-batches; None if this process has all of them.
        on_progress: Called with (steps done, total steps).
        images: Images of the examples; None if they are of text alone.

    Returns:
        `loss` (nats per response token) and `token_accuracy` over the last tenth of the steps; nothing with 0 steps.

    Raises:
        LearnerError: If a gradient is not finite. Earlier steps have been applied.
    """
    if steps == 0:
        return {}
    batches = _batches(len(examples), batch_size, derive_seed(seed, "batches"))
    losses, accuracies = [], []
    for step in range(steps):
        batch = Batch([examples[index] for index in next(batches)], images)
        loss, accuracy = accumulate_gradient(policy, batch, split(batch), runner, dp_group)
        with runner.alone(NUM_PARTS):
            norm = policy.step(learning_rate_factor(policy.config, step, steps))
        if not math.isfinite(norm):
            raise LearnerError(
                f"learning from demonstrations: the gradient of step {step + 1} of {steps} has norm {norm}, with a "
                f"loss of {loss} nats per token. Nothing was saved; lower the learning rates in policy (for a "
                "pretrained policy, the one in policy.fine_tuning) and run again"
            )
        losses.append(loss)
        accuracies.append(accuracy)
        if on_progress is not None:
            on_progress(step + 1, steps)
    tail = max(1, steps // 10)
    return {"loss": float(np.mean(losses[-tail:])), "token_accuracy": float(np.mean(accuracies[-tail:]))}


def accumulate_gradient(
    policy: TrainedModel,
    batch: Batch,
    micro_batches: Sequence[MicroBatch],
    runner: MicroBatchRunner,
    dp_group: DataParallelGroup | None = None,
) -> tuple[float, float]:
    """Add the gradient of a batch's loss: the mean over its response tokens of -log p(token | all before it).

    Args:
        policy: Accumulates the gradient.
        batch: The batch.
        micro_batches: This process's micro-batches; those of all ranks together hold every example once.
        runner: Runs the micro-batches.
        dp_group: Data-parallel group that holds the other micro-batches; None if this process has all of them.

    Returns:
        The loss, and the share of response tokens that are the model's most probable token (token accuracy).
    """
    num_right: list[Tensor] = []

    def loss(micro_batch: MicroBatch) -> tuple[Tensor, Tensor]:
        logprob_M, mode_M = policy(micro_batch, 1.0, ("logprob", "mode"))
        num_right.append((logprob_M >= mode_M).sum())
        of_batch = -logprob_M.sum() / batch.num_tokens
        return of_batch, of_batch.detach()

    on_device = [micro_batch.to(runner.device) for micro_batch in micro_batches]
    with runner.alone():
        total = policy.accumulate(loss, on_device, runner)
    sums = torch.tensor([total, int(sum(num_right))], dtype=torch.float64)
    loss_sum, num_all_right = (dp_group or SingleProcess()).sum(sums).tolist()
    return loss_sum, num_all_right / batch.num_tokens


def in_rectangles(batch: Batch) -> list[MicroBatch]:
    """Split a batch into `NUM_PARTS` micro-batches of similar length, without sharing prefixes."""
    return rectangles(batch, range(len(batch.segments)), NUM_PARTS)


def in_prefix_rows(token_budget: int, max_row_tokens: int, num_parts: int, part: int | None = None) -> Split:
    """Split batches into rows that share prefixes, with equally many micro-batches of similar size in every part.

    A row may hold two and a half times the longest example even if that is more than `max_row_tokens`: long prompts are
    mostly rules, which all examples share, and computing them again costs more than attention over a longer row.

    Args:
        token_budget: Maximum tokens of a micro-batch, padding included.
        max_row_tokens: Maximum tokens of a row in which examples share a prefix (`scoring.row_tokens`).
        num_parts: Number of parts.
        part: This process's part; None for all of them in turn.
    """
    from starpo.ragen.learning.learners.data.even_rows import even_limit

    def split(batch: Batch) -> list[MicroBatch]:
        everything = np.arange(len(batch.segments))
        token_ids = [example.token_ids for example in batch.segments]
        limit = max(max_row_tokens, 5 * max(map(len, token_ids)) // 2) if max_row_tokens else 0
        limit = even_limit(token_ids, min(limit, token_budget), num_parts)
        parts = [
            micro_batches(batch, everything, token_budget, row_tokens=limit, rank=rank, num_ranks=num_parts)
            for rank in (range(num_parts) if part is None else [part])
        ]
        return [micro_batch for one_of_each in zip(*parts, strict=True) for micro_batch in one_of_each]

    return split


def _batches(num_rows: int, batch_size: int, seed: int) -> Iterator[list[int]]:
    """Yield the indices of the examples of each batch forever; none repeats within a pass over all full batches.

    Examples of different lengths stay mixed. Sorting them by length saves a seventh of the padding, but then a batch
    holds only short or only long answers, and the long ones, which are the hard ones, were learned much worse.
    """
    random = np.random.Generator(np.random.Philox(seed))
    size = min(batch_size, num_rows)
    while True:
        order = random.permutation(num_rows)
        for start in range(0, num_rows - size + 1, size):
            yield order[start : start + size].tolist()
