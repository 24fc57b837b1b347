"""Supervised learning on demonstrations: warm start of the embedded policy, and fine-tuning of a pretrained one.

The embedded policy imitates a mediocre player that knows the format and the rules but decides badly, so reinforcement
learning starts with well-formed responses, low success and varied returns. A pretrained policy imitates the solver.

    demonstrations -> (context, response) tokens -> next-token loss on the response -> Hugging Face folder

Suffixes: B examples, T tokens of the padded example, R response tokens of the batch.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from starpo.ragen.agents.evaluation.training_states import write_states
from starpo.ragen.agents.policy.load import load_pretrained, save_policy
from starpo.ragen.agents.policy.tiny import make_model
from starpo.ragen.agents.policy.tokenizer import make_tokenizer, unknown_speech
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.policy import PretrainedPolicy, TinyPolicy
from starpo.ragen.config.update import OptimiserConfig
from starpo.ragen.core.errors import LearnerError
from starpo.ragen.core.seeding import derive_seed
from starpo.ragen.envs.base import EnvironmentSettings
from starpo.ragen.learning.demonstrations import Demonstrations, demonstrate_turns
from starpo.ragen.learning.learners.adapters import add_adapters, merge_adapters, shape_of
from starpo.ragen.learning.learners.optimisers import ModelOptimiser, learning_rate_factor
from starpo.ragen.learning.learners.scoring import check_output_layer

NUM_PARTS = 2
"""Parts of a batch that are computed in parallel, one thread each, and number of threads of the optimiser. A constant,
not the number of cores: the resulting policy must not depend on the machine's size."""
ROWS_OF_A_PART = 4
"""Rows per part for a pretrained policy, whose activations may fill a device."""


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
    tokenizer = make_tokenizer(unknown_speech(config, environment, agent.form))
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
    learned = _learn(model, demonstrations, schedule, steps, batch_size, config.seed, NUM_PARTS, on_progress)
    save_policy(model, tokenizer, folder)
    write_states(folder, demonstrations.initial_states)
    return _headline(model, tokenizer, demonstrations) | learned


def fine_tune(
    policy: PretrainedPolicy,
    environment: EnvironmentSettings,
    agent: AgentConfig,
    max_response_tokens: int,
    excluded: frozenset[str],
    folder: str | Path,
    met: Sequence[str] = (),
    on_progress: Callable[[int, int], None] | None = None,
) -> dict[str, float]:
    """Fine-tune a pretrained policy on demonstrations, and save it with any adapters merged into its weights.

    Args:
        policy: The policy; its `fine_tuning` must be set.
        environment: Environment of the demonstrations.
        agent: How observations become prompts, as in the rollouts.
        max_response_tokens: Maximum response length, as in the rollouts; no demonstrated response is longer.
        excluded: Digests of initial states that are never demonstrated.
        folder: Output folder for config, weights (safetensors), tokenizer and the demonstrated initial states.
        met: Digests of initial states that the policy was trained on before.
        on_progress: Called with (steps done, total steps).

    Returns:
        Headline numbers, as in `imitate`.

    Raises:
        ConfigError: As in `imitate`.
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
    if config.lora is not None:
        add_adapters(model, shape_of(config.lora, model.base_model), config.lora.seed)
    model.to(device)  # type: ignore[arg-type]
    demonstrations = demonstrate_turns(
        config, environment, agent, max_response_tokens, excluded, tokenizer, config.demonstration_turns
    )
    schedule = OptimiserConfig(
        learning_rate=config.learning_rate,
        warmup_iterations=config.steps // 20,
        decay="linear",
        final_fraction=0.05,
    )
    num_parts = -(-config.batch_size // ROWS_OF_A_PART)
    learned = _learn(
        model, demonstrations, schedule, config.steps, config.batch_size, config.seed, num_parts, on_progress
    )
    if config.lora is not None:
        merge_adapters(model)
    model.to(device="cpu", dtype=getattr(torch, policy.dtype))  # type: ignore[call-arg]
    save_policy(model, tokenizer, folder)
    write_states(folder, [*dict.fromkeys([*met, *demonstrations.initial_states])])
    return _headline(model, tokenizer, demonstrations) | learned


def _headline(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, demonstrations: Demonstrations
) -> dict[str, float]:
    return {
        "num_turns": float(len(demonstrations.prompts)),
        "num_episodes": float(len(demonstrations.successes)),
        "demonstration_success": float(np.mean(demonstrations.successes)) if demonstrations.successes else 0.0,
        "num_parameters": float(model.num_parameters()),
        "vocabulary_size": float(len(tokenizer)),
    }


def _learn(
    model: PreTrainedModel,
    demonstrations: Demonstrations,
    schedule: OptimiserConfig,
    steps: int,
    batch_size: int,
    seed: int,
    num_parts: int,
    on_progress: Callable[[int, int], None] | None,
) -> dict[str, float]:
    """Train in place for `steps` batches, each computed in `num_parts` parts; a no-op with 0 steps.

    Raises:
        LearnerError: If a gradient is not finite. Earlier steps have been applied.
    """
    if steps == 0:
        return {}
    optimiser = ModelOptimiser(model, schedule)
    batches = _batches(len(demonstrations.prompts), batch_size, derive_seed(seed, "batches"))
    losses, accuracies = [], []
    model.eval()  # dropout would draw from torch's global generator and make the result irreproducible
    with _torch_threads(1), ThreadPoolExecutor(NUM_PARTS, initializer=torch.set_num_threads, initargs=(1,)) as workers:
        for step in range(steps):
            loss, accuracy = _accumulate_gradient(model, demonstrations, next(batches), workers, num_parts)
            with _torch_threads(NUM_PARTS):
                norm = optimiser.step(learning_rate_factor(schedule, step, steps))
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


@contextmanager
def _torch_threads(number: int) -> Iterator[None]:
    """Set torch's number of threads inside the context.

    The last bits of a sum depend on the number of threads, so it must not depend on the machine.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _accumulate_gradient(
    model: PreTrainedModel,
    demonstrations: Demonstrations,
    rows: list[int],
    workers: ThreadPoolExecutor,
    num_parts: int = NUM_PARTS,
) -> tuple[float, float]:
    """Set the gradient of the batch's loss: the mean over its response tokens of -log p(token | all before it).

    The batch is split into parts of rows of similar length, each padded separately and, on a CPU, computed in parallel.

    Returns:
        The loss, and the share of response tokens that are the model's most probable token (token accuracy).
    """
    rows = sorted(rows, key=lambda row: len(demonstrations.prompts[row]) + len(demonstrations.responses[row]))
    num_tokens = sum(len(demonstrations.responses[row]) for row in rows)
    cut = -(-len(rows) // num_parts)
    parts = [rows[start : start + cut] for start in range(0, len(rows), cut)]
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]

    def learn(part: list[int]) -> tuple[float, int, tuple[torch.Tensor, ...]]:
        loss, num_right = _response_loss(model, demonstrations, part)
        return loss.item(), num_right, torch.autograd.grad(loss / num_tokens, parameters)

    total, total_right = 0.0, 0
    for parameter in parameters:
        parameter.grad = None
    for loss, num_right, gradients in (workers.map if model.device.type == "cpu" else map)(learn, parts):
        total, total_right = total + loss, total_right + num_right
        for parameter, share in zip(parameters, gradients, strict=True):
            parameter.grad = share if parameter.grad is None else parameter.grad + share
    return total / num_tokens, total_right / num_tokens


def _response_loss(model: PreTrainedModel, demonstrations: Demonstrations, rows: list[int]) -> tuple[torch.Tensor, int]:
    """Compute the sum of -log p over the rows' response tokens, and how many are the model's most probable token.

    Logits are computed only at the R positions that predict a response token. Padding is on the right, out of reach of
    causal attention, so no attention mask is needed and any padding token works.
    """
    tokens = [demonstrations.prompts[row] + demonstrations.responses[row] for row in rows]
    ids_BT = torch.zeros((len(rows), max(map(len, tokens))), dtype=torch.int64)
    predicts_BT = torch.zeros_like(ids_BT, dtype=torch.bool)
    for i, row in enumerate(rows):
        ids_BT[i, : len(tokens[i])] = torch.tensor(tokens[i])
        predicts_BT[i, len(demonstrations.prompts[row]) - 1 : len(tokens[i]) - 1] = True
    ids_BT, predicts_BT = ids_BT.to(model.device), predicts_BT.to(model.device)
    hidden_BT = model.base_model(input_ids=ids_BT, use_cache=False).last_hidden_state
    logits_RV = model.get_output_embeddings()(hidden_BT[predicts_BT]).float()
    targets_R = ids_BT.roll(-1, dims=1)[predicts_BT]
    num_right = int((logits_RV.detach().argmax(-1) == targets_R).sum())
    return F.cross_entropy(logits_RV, targets_R, reduction="sum"), num_right


def _batches(num_rows: int, batch_size: int, seed: int) -> Iterator[list[int]]:
    """Yield the row indices of batches forever; no row repeats within a pass over all full batches.

    Rows of different lengths stay mixed. Sorting them by length saves a seventh of the padding, but then a batch holds
    only short or only long answers, and the long ones, which are the hard ones, were learned much worse.
    """
    random = np.random.Generator(np.random.Philox(seed))
    size = min(batch_size, num_rows)
    while True:
        order = random.permutation(num_rows)
        for start in range(0, num_rows - size + 1, size):
            yield order[start : start + size].tolist()
