"""Resource estimate of a run, part by part.

settings, architecture, machine --estimate--> Estimate --fit--> or an error; --flows.cli.plan--> tables
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.config.torch_engine import TorchEngineConfig
from starpo.ragen.sizing.architecture import Architecture, known_architecture
from starpo.ragen.sizing.device import GIB, Machine
from starpo.ragen.sizing.imitation import imitation_parts
from starpo.ragen.sizing.memory import BYTES, DType, MemoryItem, kv_cache_bytes, scaled
from starpo.ragen.sizing.passes import Pass, pass_parts
from starpo.ragen.sizing.states import states_of
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
        imitation: All memory during the warm start or fine-tuning, which ends before the rest is allocated.
    """

    always: list[MemoryItem]
    rollout: list[MemoryItem]
    update: list[MemoryItem]
    imitation: list[MemoryItem]

    @property
    def peak_bytes(self) -> float:
        """Memory of the phase that needs the most."""
        return _sum(self.parts)

    @property
    def parts(self) -> list[MemoryItem]:
        """Parts of the peak, largest first."""
        phases: list[list[MemoryItem]] = [[*self.always, *self.rollout], [*self.always, *self.update], self.imitation]
        return sorted(max(phases, key=_sum), key=lambda part: -part.size_bytes)


@dataclass(frozen=True)
class Estimate:
    """Estimated resources of a run.

    Attributes:
        architecture: Architecture of the policy.
        machine: Machine assumed to run it.
        num_trained: 'policy', or a companion's name -> number of parameters that an update changes.
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
    host: list[MemoryItem]
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
        *scaled(gradients, 1 + passes if ranks == 1 else 1),
        *scaled(
            pass_parts(_update_pass(config, architecture, tokens), config, architecture, tokens, is_cpu=is_cpu), passes
        ),
    ]
    imitation = imitation_parts(config, architecture, tokens, is_cpu=is_cpu)
    if is_cpu:  # all ranks, and what they would offload, share one memory
        states, update, host = scaled([*states, *host], ranks), scaled(update, ranks), []
    return Estimate(
        architecture=architecture,
        machine=machine,
        num_trained=trained_parameters(config, architecture),
        num_gpus=0 if is_cpu else num_gpus(config),
        memory=Memory(
            [_base(num_processes + ranks, is_cpu=is_cpu), *states, *weights, *_teacher(config)],
            caches,
            update,
            [_base(ranks, is_cpu=is_cpu), *imitation] if imitation else [],
        ),
        host=host,
        tokens=tokens,
        storage=run_bytes(config, architecture, tokens),
    )


def _base(num_processes: int, *, is_cpu: bool) -> MemoryItem:
    if is_cpu:
        return MemoryItem("processes", num_processes * PROCESS_BYTES, f"{num_processes} x {PROCESS_BYTES / GIB:g} GiB")
    return MemoryItem("CUDA", CUDA_BYTES, "context and fragments, assumed")


def num_gpus(config: StarPOConfig) -> int:
    """Return how many GPUs the settings ask for; engine and learner share them."""
    return max(config.update.learner_config.sharding.num_ranks, math.prod(config.rollout.engine_config.copies))


def _learner_states(
    config: StarPOConfig, architecture: Architecture
) -> tuple[list[MemoryItem], list[MemoryItem], list[MemoryItem]]:
    """Estimate a learner's permanent states, one set of gradients, and its host memory, per rank."""
    update, sharding = config.update, config.update.learner_config.sharding
    cut_by = sharding.num_ranks if sharding.stage == 3 else 1
    states: list[MemoryItem] = []
    if update.lora is not None:
        size = BYTES[update.dtype] * architecture.num_parameters / cut_by
        shared = f", {' and '.join(update.optimisers)} together" if len(update.optimisers) > 1 else ""
        states.append(
            MemoryItem("frozen weights", size, f"{BYTES[update.dtype]} P, P = {architecture.num_parameters:,}{shared}")
        )
    models = [
        states_of(name, trained, update.optimisers[name].type, architecture, sharding, update.dtype)
        for name, trained in trained_parameters(config, architecture).items()
    ]
    states += [part for model in models for part in model.held]
    for companion in update.companions:
        held = 0 if companion.is_trained else companion.num_frozen(architecture, update.lora)
        if held:
            states.append(MemoryItem(companion.name, 4.0 * held / cut_by, f"4 P, P = {held:,}"))
    gradients = [model.gradients for model in models]
    if not sharding.stage:  # models take their steps in turn, and free their gradients
        gradients = [max(gradients, key=lambda part: part.size_bytes)]
    return states, gradients, [part for model in models for part in model.host]


def _teacher(config: StarPOConfig) -> list[MemoryItem]:
    """Return the weights of a teacher that is loaded here; they stay between its stages."""
    policy = config.teacher and config.teacher.loaded(config.policy)
    if policy is None:
        return []
    known = known_architecture(config.model_copy(update={"policy": policy}))
    size = known.num_parameters if known else 0
    return [MemoryItem("teacher", 4.0 * size, f"4 P, P = {size:,}" if known else "of unknown size here: not counted")]


def _update_pass(config: StarPOConfig, architecture: Architecture, tokens: IterationTokens) -> Pass:
    update = config.update
    segments = config.agent.max_turns if config.agent.begins_anew else 1
    most = tokens.num_trajectories * tokens.kept * segments * tokens.longest_context
    num_tokens = int(min(max(update.micro_batch_tokens, tokens.longest_context), max(most, tokens.longest_context)))
    return Pass(
        num_tokens,
        min(architecture.hidden_size, update.micro_batch_tokens),
        update.dtype,
        update.lora,
        is_recomputed=update.activation_checkpointing,
        has_entropy=update.has_entropy_bonus,
        is_cut_up=update.learner_config.sharding.stage == 3,
    )


def _engine(
    config: StarPOConfig, architecture: Architecture, tokens: IterationTokens, machine: Machine
) -> tuple[list[MemoryItem], list[MemoryItem], int]:
    """Estimate an engine's permanent memory and that of a rollout, per GPU, and its number of own processes."""
    rollout, is_cpu, engine = config.rollout, machine.is_cpu, config.rollout.engine_config
    if not engine.plays_checkpoint:
        return [], [], 0
    context = kv_cache_bytes(architecture, tokens.longest_context, "float32")
    reserved = engine.reserved(4.0 * architecture.num_parameters, context, None if is_cpu else machine.memory_bytes)
    if reserved is not None:
        copies = engine.copies[0] if is_cpu else 0
        return [MemoryItem("engine: weights and cache", reserved[0] * (copies or 1), reserved[1])], [], copies
    dtype = _engine_dtype(config, is_cpu=is_cpu)
    weights = float(BYTES[dtype] * architecture.num_parameters)
    num_shards = -(-rollout.num_groups // rollout.shard_groups)
    workers = machine.number if is_cpu and min(machine.number, num_shards) > 1 else 0
    rows = _shard_rows(config)
    slots = tokens.longest_context * (1 if config.agent.begins_anew else 2)  # caches of the current and the next turn
    cache = kv_cache_bytes(architecture, rows * slots, dtype)
    busy = min(workers, num_shards) or 1
    how = f"{BYTES[dtype]} P" + f" x {workers} workers" * bool(workers)
    return (
        [MemoryItem("engine: weights", weights * (workers or 1), how)],
        [
            MemoryItem(
                "keys and values", cache * busy,
                f"{rows} rows x {slots:,} slots, {kv_cache_bytes(architecture, 1, dtype):,.0f} bytes per token"
                + f" x {busy} shards" * (busy > 1),
            )
        ],
        workers,
    )  # fmt: skip


def _engine_dtype(config: StarPOConfig, *, is_cpu: bool) -> DType:
    """Return the dtype of engine 'torch', which is the weights' own on a GPU if it is not set."""
    engine = config.rollout.engine_config
    if isinstance(engine, TorchEngineConfig) and engine.dtype != "auto":
        return engine.dtype
    return config.policy.dtype if config.policy.type == "pretrained" and not is_cpu else "float32"


def _shard_rows(config: StarPOConfig) -> int:
    """Return the number of responses that the torch engine generates together."""
    rollout = config.rollout
    num_groups = min(rollout.shard_groups, rollout.num_groups)
    return num_groups * rollout.group_size * (rollout.search.num_rows if rollout.search else 1)


def _sum(parts: Iterable[MemoryItem]) -> float:
    return sum(part.size_bytes for part in parts)
