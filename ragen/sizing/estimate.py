"""Resource estimate of a run, part by part.

settings, architecture, machine --estimate--> Estimate --fit--> or an error; --flows.cli.plan--> tables
"""

import math
from dataclasses import dataclass

from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.sizing.architecture import Architecture
from starpo.ragen.sizing.device import GIB, Machine
from starpo.ragen.sizing.memory import (
    BYTES,
    DType,
    Part,
    activation_bytes,
    adapter_activation_bytes,
    attention_bytes,
    image_bytes,
    kv_cache_bytes,
    logits_part,
    optimiser_bytes,
    zero_bytes,
)
from starpo.ragen.sizing.storage import run_bytes, trained_parameters
from starpo.ragen.sizing.tokens import IterationTokens, count_tokens

PROCESS_BYTES = 0.45 * GIB
"""Memory of a CPU process with torch and Prefect loaded but no model."""
CUDA_BYTES = 1.0 * GIB
"""GPU memory for the CUDA context, kernels and allocator fragmentation. Assumed."""


@dataclass(frozen=True)
class Memory:
    """Memory of one GPU, or of a machine that computes on its CPU.

    Attributes:
        always: Memory held permanently from the first update on.
        rollout: Additional memory during sampling.
        update: Additional memory during an update.
    """

    always: list[Part]
    rollout: list[Part]
    update: list[Part]

    @property
    def peak_bytes(self) -> float:
        """Permanent memory plus that of the larger phase."""
        return _sum(self.always) + max(_sum(self.rollout), _sum(self.update))

    @property
    def parts(self) -> list[Part]:
        """Parts of the peak, largest first."""
        phase = max(self.rollout, self.update, key=_sum)
        return sorted([*self.always, *phase], key=lambda part: -part.size_bytes)


@dataclass(frozen=True)
class Estimate:
    """Estimated resources of a run.

    Attributes:
        architecture: Architecture of the policy.
        machine: Machine assumed to run it.
        num_trained: 'policy', 'critic', 'prm' -> number of parameters that an update changes.
        num_gpus: Number of GPUs required; 0 on a CPU. Engine and learner share them.
        memory: Memory of each GPU, or of the machine.
        host: Host memory held per GPU.
        tokens: Tokens of an iteration.
        storage: 'checkpoints', 'datasets' -> bytes of the whole run.
    """

    architecture: Architecture
    machine: Machine
    num_trained: dict[str, int]
    num_gpus: int
    memory: Memory
    host: list[Part]
    tokens: IterationTokens
    storage: dict[str, float]

    @property
    def host_bytes(self) -> float:
        """Host memory for all GPUs."""
        return _sum(self.host) * max(1, self.num_gpus)


def estimate(config: StarPOConfig, architecture: Architecture, machine: Machine) -> Estimate:
    """Estimate the resources of a run on one kind of machine.

    Args:
        config: Settings of the run.
        architecture: Architecture of the policy.
        machine: Machine to run on.
    """
    tokens = count_tokens(config)
    is_cpu = machine.is_cpu
    ranks = config.update.learner_config.sharding.num_ranks
    states, gradients, host = _learner_states(config, architecture)
    passes = machine.number if is_cpu and ranks == 1 else 1  # concurrent micro-batches
    weights, caches, num_processes = _engine(config, architecture, tokens, machine)
    update = [
        *_scaled(gradients, 1 + passes if ranks == 1 else 1),
        *_scaled(_pass(config, architecture, tokens, is_cpu=is_cpu), passes),
    ]
    base = (
        Part(
            "processes",
            (num_processes + ranks) * PROCESS_BYTES,
            f"{num_processes + ranks} x {PROCESS_BYTES / GIB:g} GiB",
        )
        if is_cpu
        else Part("CUDA", CUDA_BYTES, "context and fragments, assumed")
    )
    if is_cpu:  # all ranks, and what they would offload, share one memory
        states, update, host = _scaled([*states, *host], ranks), _scaled(update, ranks), []
    return Estimate(
        architecture=architecture,
        machine=machine,
        num_trained=trained_parameters(config, architecture),
        num_gpus=0 if is_cpu else num_gpus(config),
        memory=Memory([base, *states, *weights], caches, update),
        host=host,
        tokens=tokens,
        storage=run_bytes(config, architecture, tokens),
    )


def num_gpus(config: StarPOConfig) -> int:
    """Return how many GPUs the settings ask for; engine and learner share them."""
    return max(config.update.learner_config.sharding.num_ranks, math.prod(config.rollout.engine_config.copies))


def _learner_states(config: StarPOConfig, architecture: Architecture) -> tuple[list[Part], list[Part], list[Part]]:
    """Estimate a learner's permanent states, one set of gradients, and its host memory, per rank."""
    update, sharding = config.update, config.update.learner_config.sharding
    stage, ranks = sharding.stage, sharding.num_ranks
    states: list[Part] = []
    gradients: list[Part] = []
    host: list[Part] = []
    if update.lora is not None:
        size = BYTES[update.dtype] * architecture.num_parameters / (ranks if stage == 3 else 1)
        shared = f", {' and '.join(update.optimisers)} together" if len(update.optimisers) > 1 else ""
        states.append(
            Part("frozen weights", size, f"{BYTES[update.dtype]} P, P = {architecture.num_parameters:,}{shared}")
        )
    for name, trained in trained_parameters(config, architecture).items():
        optimiser = update.optimisers[name]
        if stage:
            cut = zero_bytes(trained, stage, ranks, update.dtype, is_offloaded=sharding.is_offloaded)
            how = f"ZeRO {stage} over {ranks}, T = {trained:,}"
            states += [Part(f"{name}: {what}", cut[what], how) for what in ("weights", "optimiser")]
            gradients.append(Part(f"{name}: gradients", cut["gradients"], how))
            host.append(Part(f"{name}: optimiser", cut["host"], f"offloaded, 12 T / {ranks}, T = {trained:,}"))
        else:
            held = optimiser_bytes(architecture, trained, optimiser.type)
            states.append(Part(f"{name}: weights", 4.0 * trained, f"4 T, T = {trained:,}"))
            states.append(Part(f"{name}: optimiser", held, f"{optimiser.type}, {held / trained:.2g} T"))
            gradients.append(Part(f"{name}: gradients", 4.0 * trained, f"4 T, T = {trained:,}"))
    if update.kl_coefficient > 0 and update.lora is None:
        size = 4.0 * architecture.num_parameters / (ranks if stage == 3 else 1)
        states.append(Part("reference", size, f"4 P, P = {architecture.num_parameters:,}"))
    if not stage:  # models take their steps in turn, and free their gradients
        gradients = [max(gradients, key=lambda part: part.size_bytes)]
    return states, gradients, [part for part in host if part.size_bytes]


def _pass(config: StarPOConfig, architecture: Architecture, tokens: IterationTokens, *, is_cpu: bool) -> list[Part]:
    """Estimate the memory of the forward and backward pass of one micro-batch of the policy."""
    update = config.update
    segments = config.agent.max_turns if config.agent.begins_anew else 1
    most = tokens.num_trajectories * tokens.kept * segments * tokens.longest_context
    num_tokens = int(min(max(update.micro_batch_tokens, tokens.longest_context), max(most, tokens.longest_context)))
    responses = int(num_tokens * tokens.longest_response / tokens.longest_context)
    is_recomputed = update.activation_checkpointing
    recomputed = " recomputed" if is_recomputed else ""
    adapters = []
    if update.lora is not None:
        rank, targets = update.lora.rank, update.lora.targets
        kept = adapter_activation_bytes(architecture, num_tokens, rank, targets, is_recomputed=is_recomputed)
        adapters.append(Part("adapters' activations", kept, f"float32{recomputed}, rank {rank}"))
    return [
        *adapters,
        *_images(config, architecture, tokens, num_tokens),
        _attention(config, architecture, tokens, num_tokens, is_cpu=is_cpu),
        Part(
            "activations",
            activation_bytes(architecture, num_tokens, update.dtype, is_recomputed=is_recomputed),
            f"{update.dtype}{recomputed}, {num_tokens:,} tokens of a micro-batch",
        ),
        logits_part(
            architecture,
            responses,
            has_entropy=update.entropy_coefficient > 0,
            is_cut_up=update.learner_config.sharding.stage == 3,
        ),
    ]


def _images(config: StarPOConfig, architecture: Architecture, tokens: IterationTokens, num_tokens: int) -> list[Part]:
    """Estimate what the encoder of images keeps, if the images of a micro-batch are all different."""
    vision, agent, update = architecture.vision, config.agent, config.update
    if vision is None or not tokens.image:
        return []
    turns = agent.max_turns if agent.context == "full" else min(agent.window_turns, agent.max_turns)
    num_images = math.ceil(num_tokens / tokens.longest_context * turns)
    num_seen = num_images * tokens.image
    size = image_bytes(vision, num_seen, update.dtype, is_recomputed=update.activation_checkpointing)
    return [Part("activations of images", size, f"{num_images:,} images of {tokens.image} tokens in a micro-batch")]


def _attention(
    config: StarPOConfig, architecture: Architecture, tokens: IterationTokens, num_tokens: int, *, is_cpu: bool
) -> Part:
    """Estimate what attention keeps on top, of whichever keeps more: rows that share prefixes, or one context a row."""
    update, heads = config.update, architecture.num_heads
    has_scores = update.dtype == "float32" and not is_cpu and architecture.num_kv_heads < heads
    longest_shared = min(architecture.hidden_size, update.micro_batch_tokens)
    row_tokens = tokens.longest_context if has_scores else longest_shared
    size = attention_bytes(
        architecture, num_tokens, row_tokens, update.dtype,
        is_fused=not has_scores, is_recomputed=update.activation_checkpointing,
    )  # fmt: skip
    what = f"scores of {heads} heads" if has_scores else "masks"
    return Part("attention", size, f"{update.dtype}, {what}, rows of {row_tokens:,} tokens")


def _engine(
    config: StarPOConfig, architecture: Architecture, tokens: IterationTokens, machine: Machine
) -> tuple[list[Part], list[Part], int]:
    """Estimate an engine's permanent memory and that of a rollout, per GPU, and its number of own processes."""
    rollout, is_cpu, engine = config.rollout, machine.is_cpu, config.rollout.engine_config
    if engine.is_remote:
        return [], [], 0
    context = kv_cache_bytes(architecture, tokens.longest_context, "float32")
    reserved = engine.reserved(4.0 * architecture.num_parameters, context, None if is_cpu else machine.memory_bytes)
    if reserved is not None:
        copies = engine.copies[0] if is_cpu else 0
        return [Part("engine: weights and cache", reserved[0] * (copies or 1), reserved[1])], [], copies
    dtype: DType = config.policy.dtype if config.policy.type == "pretrained" and not is_cpu else "float32"
    weights = float(BYTES[dtype] * architecture.num_parameters)
    num_shards = -(-rollout.num_groups // rollout.shard_groups)
    workers = machine.number if is_cpu and min(machine.number, num_shards) > 1 else 0
    rows = _shard_rows(config)
    slots = tokens.longest_context * (1 if config.agent.begins_anew else 2)  # caches of the current and the next turn
    cache = kv_cache_bytes(architecture, rows * slots, dtype)
    busy = min(workers, num_shards) or 1
    how = f"{BYTES[dtype]} P" + f" x {workers} workers" * bool(workers)
    return (
        [Part("engine: weights", weights * (workers or 1), how)],
        [
            Part(
                "keys and values", cache * busy,
                f"{rows} rows x {slots:,} slots, {kv_cache_bytes(architecture, 1, dtype):,.0f} bytes per token"
                + f" x {busy} shards" * (busy > 1),
            )
        ],
        workers,
    )  # fmt: skip


def _shard_rows(config: StarPOConfig) -> int:
    """Return the number of responses that the torch engine generates together."""
    rollout = config.rollout
    num_groups = min(rollout.shard_groups, rollout.num_groups)
    return num_groups * rollout.group_size * (rollout.search.num_rows if rollout.search else 1)


def _scaled(parts: list[Part], factor: int) -> list[Part]:
    if factor == 1:
        return parts
    return [Part(part.name, part.size_bytes * factor, f"{part.formula} x {factor}") for part in parts]


def _sum(parts: list[Part]) -> float:
    return sum(part.size_bytes for part in parts)
