"""Supervised learning: warm start of the embedded policy, and fine-tuning of a pretrained one, by the learner's means.

The embedded policy imitates a mediocre player that knows the format and the rules but decides badly, so reinforcement
learning starts with well-formed responses, low success and varied returns. A pretrained policy imitates the solver.

    examples -> batches -> micro-batches -> next-token loss on the responses -> step -> Hugging Face folder

Suffix: M response tokens of a micro-batch.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from starpo.ragen.agents.policy.initial_states import write_states
from starpo.ragen.agents.policy.load import load_pretrained
from starpo.ragen.agents.policy.save import save_policy
from starpo.ragen.agents.policy.tiny import make_model
from starpo.ragen.agents.policy.tokenizer import extra_vocabulary, make_tokenizer
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.policy import PretrainedPolicy, TinyPolicy
from starpo.ragen.config.update import OptimiserConfig
from starpo.ragen.core.allocator import give_back_freed_memory
from starpo.ragen.core.errors import LearnerError
from starpo.ragen.core.seeding import derive_seed
from starpo.ragen.envs.base import EnvironmentSettings
from starpo.ragen.learning.demonstrations import demonstrate_turns
from starpo.ragen.learning.examples import Batch, Lessons
from starpo.ragen.learning.learners.adapters import add_adapters, merge_adapters, shape_of
from starpo.ragen.learning.learners.batches import MicroBatch, micro_batches, rectangles
from starpo.ragen.learning.learners.micro_batch_runner import MicroBatchRunner
from starpo.ragen.learning.learners.optimisers import ModelOptimiser, learning_rate_factor
from starpo.ragen.learning.learners.scoring import ResponseScores, check_output_layer, row_tokens
from starpo.ragen.learning.learners.trained_model import TorchModel, TrainedModel

NUM_PARTS = 2
"""Parts of a batch that are computed in parallel on a CPU, one thread each, and number of threads of the optimiser. A
constant, not the number of cores: the resulting policy must not depend on the machine's size."""

Split = Callable[[Batch], list[MicroBatch]]
"""Splits a batch into micro-batches."""


def imitate(
    config: TinyPolicy,
    environment: EnvironmentSettings,
    agent: AgentConfig,
    max_response_tokens: int,
    excluded: frozenset[str],
    folder: str | Path,
    on_progress: Callable[[int, int], None] | None = None,
) -> dict[str, float]:
    """Create the embedded policy, train it on demonstrations, and save it.

    Args:
        config: Size of the policy, the demonstrations and the schedule.
        environment: Environment of the demonstrations.
        agent: How observations become prompts, as in the rollouts.
        max_response_tokens: Maximum response length, as in the rollouts; no demonstrated response is longer.
        excluded: Digests of initial states that are never demonstrated (those of the evaluation panels).
        folder: Output folder for config, weights (safetensors), tokenizer and the demonstrated initial states.
        on_progress: Called with (steps done, total steps).

    Returns:
        Headline numbers: `num_turns` and `num_episodes` demonstrated, `demonstration_success` (success rate of these
        episodes), `loss` (nats per response token) and `token_accuracy` over the last tenth of the steps (both absent
        with 0 steps), `num_parameters`, `vocabulary_size`.

    Raises:
        ConfigError: If the environment has no demonstrator, or a demonstrated response is longer than allowed.
        LearnerError: If a gradient is not finite. Nothing has been saved.
    """
    tokenizer = make_tokenizer(extra_vocabulary(config, environment, agent.form), config.patch_size)
    model = make_model(config, tokenizer)
    steps, batch_size = config.warm_start_steps, config.warm_start_batch_size
    needed = min(config.demonstration_turns, steps * batch_size)
    demonstrations = demonstrate_turns(config, environment, agent, max_response_tokens, excluded, tokenizer, needed)
    schedule = OptimiserConfig(
        type="muon",
        matrix_learning_rate=config.matrix_learning_rate,
        momentum=0.95,
        learning_rate=config.learning_rate,
        beta2=0.98,
        warmup_iterations=20,
        decay="linear",
        final_fraction=0.05,
    )
    runner = MicroBatchRunner(torch.device("cpu"), NUM_PARTS, "float32")
    learned = _learn(
        model, demonstrations, schedule, steps, batch_size, config.seed, runner, _in_rectangles, on_progress
    )
    save_policy(model, tokenizer, folder)
    write_states(folder, demonstrations.initial_states)
    return _headline(model, tokenizer, demonstrations) | learned


def fine_tune(
    policy: PretrainedPolicy,
    lessons: Callable[[PreTrainedTokenizerBase], Lessons],
    folder: str | Path,
    met: Sequence[str] = (),
    on_progress: Callable[[int, int], None] | None = None,
) -> dict[str, float]:
    """Fine-tune a pretrained policy, and save it with any adapters merged into its weights.

    Args:
        policy: The policy; its `fine_tuning` must be set.
        lessons: Returns what to imitate, as tokens of the policy's tokenizer.
        folder: Output folder for config, weights (safetensors), tokenizer and the initial states that were trained on.
        met: Digests of initial states that the policy was trained on before.
        on_progress: Called with (steps done, total steps).

    Returns:
        Headline numbers, as in `imitate`.

    Raises:
        PolicyError: If the policy cannot be loaded, or its logits are not a linear map of its last hidden state.
        LearnerError: If the policy lacks a layer that the adapters name, or a gradient is not finite. Nothing has been
            saved.
        MissingPackageError: If adapters are requested and PEFT is not installed.
    """
    config = policy.fine_tuning
    assert config is not None
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model, tokenizer = load_pretrained(policy, policy.dtype if config.lora else torch.float32)
    check_output_layer(model)
    given = lessons(tokenizer)
    if config.lora is not None:
        add_adapters(model, shape_of(config.lora, model.base_model), config.lora.seed)
    model.to(device)  # type: ignore[arg-type]
    schedule = OptimiserConfig(
        learning_rate=config.learning_rate,
        warmup_iterations=config.steps // 20,
        decay="linear",
        final_fraction=0.05,
    )
    runner = MicroBatchRunner(device, NUM_PARTS, config.dtype)
    split = _in_prefix_rows(config.micro_batch_tokens, row_tokens(model), NUM_PARTS if device.type == "cpu" else 1)
    learned = _learn(model, given, schedule, config.steps, config.batch_size, config.seed, runner, split, on_progress)
    if config.lora is not None:
        merge_adapters(model)
    model.to(device="cpu", dtype=getattr(torch, policy.dtype))  # type: ignore[call-arg]
    save_policy(model, tokenizer, folder)
    write_states(folder, [*dict.fromkeys([*met, *given.initial_states])])
    headline = _headline(model, tokenizer, given) | learned
    del model
    give_back_freed_memory()
    return headline


def _headline(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, lessons: Lessons) -> dict[str, float]:
    return {
        "num_turns": float(lessons.num_turns),
        "num_episodes": float(len(lessons.successes)),
        "demonstration_success": float(np.mean(lessons.successes)) if lessons.successes else 0.0,
        "num_parameters": float(model.num_parameters()),
        "vocabulary_size": float(len(tokenizer)),
    }


def _learn(
    model: PreTrainedModel,
    lessons: Lessons,
    schedule: OptimiserConfig,
    steps: int,
    batch_size: int,
    seed: int,
    runner: MicroBatchRunner,
    split: Split,
    on_progress: Callable[[int, int], None] | None,
) -> dict[str, float]:
    """Train in place for `steps` batches; a no-op with 0 steps.

    Raises:
        LearnerError: If a gradient is not finite. Earlier steps have been applied.
    """
    if steps == 0:
        return {}
    policy = TorchModel(ResponseScores(model), ModelOptimiser(model, schedule))
    examples = lessons.examples
    batches = _batches(len(examples), batch_size, derive_seed(seed, "batches"))
    losses, accuracies = [], []
    model.eval()  # dropout would draw from torch's global generator and make the result irreproducible
    for step in range(steps):
        batch = Batch([examples[index] for index in next(batches)], lessons.images)
        loss, accuracy = accumulate_gradient(policy, batch, split(batch), runner)
        with runner.alone(NUM_PARTS):
            norm = policy.step(learning_rate_factor(schedule, step, steps))
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
    policy: TrainedModel, batch: Batch, micro_batches: Sequence[MicroBatch], runner: MicroBatchRunner
) -> tuple[float, float]:
    """Add the gradient of a batch's loss: the mean over its response tokens of -log p(token | all before it).

    Args:
        policy: Accumulates the gradient.
        batch: The batch.
        micro_batches: All of its examples.
        runner: Runs the micro-batches.

    Returns:
        The loss, and the share of response tokens that are the model's most probable token (token accuracy).
    """
    num_right: list[int] = []

    def loss(micro_batch: MicroBatch) -> tuple[Tensor, float]:
        logprob_M, mode_M = policy(micro_batch, 1.0, ("logprob", "mode"))
        num_right.append(int((logprob_M >= mode_M).sum()))
        of_batch = -logprob_M.sum() / batch.num_tokens
        return of_batch, of_batch.item()

    on_device = [micro_batch.to(runner.device) for micro_batch in micro_batches]
    with runner.alone():
        total = policy.accumulate(loss, on_device, runner)
    return total, sum(num_right) / batch.num_tokens


def _in_rectangles(batch: Batch) -> list[MicroBatch]:
    return rectangles(batch, range(len(batch.segments)), NUM_PARTS)


def _in_prefix_rows(token_budget: int, max_row_tokens: int, num_parts: int) -> Split:
    """Split batches into rows that share prefixes, with a multiple of `num_parts` micro-batches of similar size.

    A row may hold two and a half times the longest example even if that is more than `max_row_tokens`: long prompts are
    mostly rules, which all examples share, and computing them again costs more than attention over a longer row.
    """

    def split(batch: Batch) -> list[MicroBatch]:
        everything = np.arange(len(batch.segments))
        longest = max(len(example.token_ids) for example in batch.segments)
        limit = max(max_row_tokens, 5 * longest // 2) if max_row_tokens else 0
        parts = [
            micro_batches(batch, everything, token_budget, row_tokens=limit, rank=part, num_ranks=num_parts)
            for part in range(num_parts)
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
