"""Memory of the supervised learning before the first update: a warm start, or a fine-tuning.

settings, architecture --imitation_parts--> parts
"""

import math

from starpo.ragen.config.learner import Sharding
from starpo.ragen.config.policy import FineTuning, TinyPolicy
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.sizing.architecture import Architecture
from starpo.ragen.sizing.memory import BYTES, MemoryItem, scaled
from starpo.ragen.sizing.passes import Pass, pass_parts
from starpo.ragen.sizing.states import states_of
from starpo.ragen.sizing.tokens import IterationTokens

NUM_PARTS = 2
"""Copy of the constant in `ragen.learning.learners.supervised`, which imports torch."""


def imitation_parts(
    config: StarPOConfig, architecture: Architecture, tokens: IterationTokens, *, is_cpu: bool
) -> list[MemoryItem]:
    """Estimate the memory of the warm start or fine-tuning, processes aside; empty if there is none there.

    Fine-tuning computes the openings that contexts share once a row (`supervised.in_prefix_rows`).

    Args:
        config: Settings of the run.
        architecture: Architecture of the policy.
        tokens: Tokens of an iteration.
        is_cpu: Whether the machine computes on its CPU; the embedded policy's warm start is always there.
    """
    policy = config.policy
    if isinstance(policy, TinyPolicy):
        return _warm_start(policy, config, architecture, tokens) if is_cpu and policy.warm_start_steps else []
    if policy.fine_tuning is None:
        return []
    return _fine_tuning(policy.fine_tuning, config, architecture, tokens, is_cpu=is_cpu)


def _warm_start(
    policy: TinyPolicy, config: StarPOConfig, architecture: Architecture, tokens: IterationTokens
) -> list[MemoryItem]:
    states = states_of("policy", architecture.num_parameters, "muon", architecture, Sharding(), "float32")
    num_rows = -(-policy.warm_start_batch_size // NUM_PARTS)
    one = Pass(num_rows * tokens.longest_context, 0, "float32")
    passing = pass_parts(one, config, architecture, tokens, is_cpu=True)
    return [*states.held, *scaled([states.gradients, *passing], NUM_PARTS)]


def _fine_tuning(
    tuning: FineTuning, config: StarPOConfig, architecture: Architecture, tokens: IterationTokens, *, is_cpu: bool
) -> list[MemoryItem]:
    learner, lora, longest = config.update.learner_config, tuning.lora, tokens.longest_context
    sharding = learner.sharding if learner.fine_tunes else Sharding()
    num_parts = NUM_PARTS if is_cpu and not learner.fine_tunes else sharding.num_ranks
    trained = architecture.num_parameters
    held: list[MemoryItem] = []
    if lora is not None:
        trained = architecture.num_adapter_parameters(lora.rank, lora.targets)
        each = BYTES[config.policy.dtype if config.policy.type == "pretrained" else "float32"]
        size = each * architecture.num_parameters / (sharding.num_ranks if sharding.stage == 3 else 1)
        held.append(MemoryItem("frozen weights", size, f"{each} P, P = {architecture.num_parameters:,}"))
    states = states_of("policy", trained, "adamw", architecture, sharding, tuning.dtype)
    row_tokens = max(architecture.hidden_size, 5 * longest // 2)
    num_rows, batch_tokens = _rows(tuning.batch_size, row_tokens, tokens)
    part_tokens = batch_tokens / min(num_parts, num_rows)
    num_tokens = math.ceil(min(max(tuning.micro_batch_tokens, longest), max(part_tokens, longest)))
    row_tokens = min(row_tokens, num_tokens)
    one = Pass(num_tokens, row_tokens, tuning.dtype, lora, is_cut_up=sharding.stage == 3)
    passing = pass_parts(one, config, architecture, tokens, is_cpu=is_cpu)
    if learner.fine_tunes:
        ranks = [*held, *states.held, states.gradients, *passing]
        if not is_cpu:
            return ranks
        asking = MemoryItem("policy: weights of the asking process", 4.0 * architecture.num_parameters, "4 P")
        return [asking, *scaled([*ranks, *states.host], sharding.num_ranks)]
    passes = min(num_parts, num_rows) if is_cpu else 1
    num_sums = 1 if batch_tokens > passes * num_tokens else 0
    return [*held, *states.held, *scaled([states.gradients], passes + num_sums), *scaled(passing, passes)]


def _rows(num_examples: int, row_tokens: int, tokens: IterationTokens) -> tuple[int, float]:
    """Count a batch's rows of at most `row_tokens`, each of which computes the opening once, and the tokens in them."""
    each = max(1.0, tokens.context - tokens.opening)
    num_rows = math.ceil(num_examples / max(1.0, (row_tokens - tokens.opening) // each))
    return num_rows, num_rows * tokens.opening + num_examples * each
