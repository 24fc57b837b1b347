"""Supervised learning: warm start of the embedded policy, and fine-tuning of a pretrained one, by the learner's means.

The embedded policy imitates a mediocre player that knows the format and the rules but decides badly, so reinforcement
learning starts with well-formed responses, low success and varied returns. A pretrained policy imitates the solver.

    examples -> steps (`ragen.learning.learners.supervised`), here or on the learner's ranks -> Hugging Face folder
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from starpo.ragen.agents.policy.initial_states import write_states
from starpo.ragen.agents.policy.load import load_pretrained
from starpo.ragen.agents.policy.save import save_policy
from starpo.ragen.agents.policy.tiny import make_model
from starpo.ragen.agents.policy.tokenizer import extra_vocabulary, make_tokenizer
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.device import Device
from starpo.ragen.config.policy import FineTuning, PretrainedPolicy, TinyPolicy
from starpo.ragen.config.update import OptimiserConfig
from starpo.ragen.core.allocator import give_back_freed_memory
from starpo.ragen.envs.base import EnvironmentSettings
from starpo.ragen.learning.demonstrations import Demonstrations, demonstrate_turns
from starpo.ragen.learning.examples import ImitationData
from starpo.ragen.learning.learners.learner import FineTuner
from starpo.ragen.learning.learners.micro_batch_runner import MicroBatchRunner
from starpo.ragen.learning.learners.models.adapters import merge_adapters
from starpo.ragen.learning.learners.models.optimisers import ModelOptimiser
from starpo.ragen.learning.learners.models.scoring import ResponseScores, check_output_layer, row_tokens
from starpo.ragen.learning.learners.models.trained_model import TorchModel
from starpo.ragen.learning.learners.supervised import NUM_PARTS, in_prefix_rows, in_rectangles, learn, prepare_policy


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
        Headline numbers: `num_turns` and `num_episodes` demonstrated, `demonstration_success` (success rate of those
        episodes of which it is known), `loss` (nats per response token) and `token_accuracy` over the last tenth of the
        steps (both absent with 0 steps), `num_parameters`, `vocabulary_size`.

    Raises:
        ConfigError: If the environment has no demonstrator, or a demonstrated response is longer than allowed.
        LearnerError: If a gradient is not finite. Nothing has been saved.
    """
    tokenizer = make_tokenizer(extra_vocabulary(config, environment, agent.form), config.patch_size)
    model = make_model(config, tokenizer)
    steps, batch_size = config.warm_start_steps, config.warm_start_batch_size
    needed = min(config.demonstration_turns, steps * batch_size)
    demonstrations = Demonstrations()
    if needed:
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
    runner = MicroBatchRunner(Device(), NUM_PARTS, "float32")
    trained = TorchModel(ResponseScores(model.eval()), ModelOptimiser(model, schedule))
    learned = learn(
        trained,
        demonstrations.examples,
        steps,
        batch_size,
        config.seed,
        runner,
        in_rectangles,
        on_progress=on_progress,
        images=demonstrations.images,
    )
    save_policy(model, tokenizer, folder)
    write_states(folder, demonstrations.initial_states)
    return _headline(model, tokenizer, demonstrations) | learned


def fine_tune(
    policy: PretrainedPolicy,
    data: ImitationData,
    folder: str | Path,
    met: Sequence[str] = (),
    on_progress: Callable[[int, int], None] | None = None,
    learner: FineTuner | None = None,
) -> dict[str, float]:
    """Fine-tune a pretrained policy, and save it with any adapters merged into its weights.

    Args:
        policy: The policy; its `fine_tuning` must be set.
        data: What to imitate, as tokens of the policy's tokenizer.
        folder: Output folder for config, weights (safetensors), tokenizer and the initial states that were trained on.
        met: Digests of initial states that the policy was trained on before.
        on_progress: Called with (steps done, total steps).
        learner: Takes the steps; None to take them in this process, on the CPU or one GPU.

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
    model, tokenizer = load_pretrained(policy, policy.dtype if config.lora else torch.float32)
    check_output_layer(model)
    schedule = prepare_policy(model, config)
    if learner is None:
        learned = _fine_tune_here(model, config, schedule, data, on_progress)
    else:
        learned = learner.fine_tune(policy, model, data.examples, folder, on_progress, data.images)
    if config.lora is not None:
        merge_adapters(model)
    model.to(device="cpu", dtype=getattr(torch, policy.dtype))  # type: ignore[call-arg]
    save_policy(model, tokenizer, folder)
    write_states(folder, [*dict.fromkeys([*met, *data.initial_states])])
    headline = _headline(model, tokenizer, data) | learned
    del model
    give_back_freed_memory()
    return headline


def _headline(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, data: ImitationData) -> dict[str, float]:
    return {
        "num_turns": float(data.num_turns),
        "num_episodes": float(data.num_episodes),
        **({"demonstration_success": float(np.mean(data.successes))} if data.successes else {}),
        "num_parameters": float(model.num_parameters()),
        "vocabulary_size": float(len(tokenizer)),
    }


def _fine_tune_here(
    model: PreTrainedModel,
    config: FineTuning,
    schedule: OptimiserConfig,
    data: ImitationData,
    on_progress: Callable[[int, int], None] | None,
) -> dict[str, float]:
    device = Device.here()
    model.to(device.kind)  # type: ignore[arg-type]
    runner = MicroBatchRunner(device, NUM_PARTS, config.dtype)
    split = in_prefix_rows(config.micro_batch_tokens, row_tokens(model), 1 if device.is_gpu else NUM_PARTS)
    trained = TorchModel(ResponseScores(model), ModelOptimiser(model, schedule))

    def on_step(number: int, total: int) -> None:
        give_back_freed_memory()  # blocks of many sizes: what is freed would add up from step to step
        if on_progress is not None:
            on_progress(number, total)

    return learn(
        trained, data.examples, config.steps, config.batch_size, config.seed, runner, split,
        on_progress=on_step, images=data.images,
    )  # fmt: skip
