"""Storage of a run in bytes."""

from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.sizing.architecture import Architecture
from starpo.ragen.sizing.memory import optimiser_bytes
from starpo.ragen.sizing.tokens import IterationTokens
from starpo.ragen.store.keeping.retention import kept_numbers

BYTES_A_TOKEN = 1.7
"""Compressed size of `turns` per prompt or response token: ids, log-probs and text. Measured: 1.4 to 1.8 over the
rollouts of a run of the preset `sokoban`, 66 bytes per turn of 41 tokens (1,685,964 bytes for 25,478 turns)."""
OTHER_BYTES_A_TURN = 30.0
"""Size of all other datasets of an iteration per turn: rewards (8 bytes), samples, selection, metrics. Measured on the
same run: 198,710 + 271,726 + 183,274 + 140,089 bytes for 25,478 turns."""

SMALL_CHECKPOINT_BYTES = 256e6
"""A checkpoint of up to this size is written in less than a second."""
EVERY_LARGE_CHECKPOINT = 10
"""`checkpoint_every` for larger ones, if not set: a crash repeats 4.5 updates on average, learning time alone."""


def checkpoint_bytes(config: StarPOConfig, architecture: Architecture, *, is_first: bool = False) -> float:
    """Size of a checkpoint: float32 weights of all trained models and optimiser states; with LoRA, adapters only.

    Args:
        config: Settings of the run.
        architecture: Architecture of the policy.
        is_first: Whether it is the checkpoint before any update: only the policy's weights, in their own dtype.
    """
    if is_first:
        is_half = config.policy.type == "pretrained" and config.policy.dtype == "bfloat16"
        return (2.0 if is_half else 4.0) * architecture.num_parameters
    total = 0.0
    for name, trained in trained_parameters(config, architecture).items():
        total += 4.0 * trained + optimiser_bytes(architecture, trained, config.update.optimisers[name].type)
    return total


def run_bytes(config: StarPOConfig, architecture: Architecture, tokens: IterationTokens) -> dict[str, float]:
    """Storage of a whole run: 'checkpoints' (upper bound) and 'datasets'.

    Args:
        config: Settings of the run.
        architecture: Architecture of the policy.
        tokens: Tokens of an iteration.
    """
    turns = (
        config.num_rollouts
        * BYTES_A_TOKEN
        * tokens.num_trajectories
        * (tokens.prompt + tokens.response)
        * tokens.stored
    )
    others = config.iterations * OTHER_BYTES_A_TURN * tokens.num_turns * tokens.stored
    return {
        "checkpoints": checkpoint_bytes(config, architecture, is_first=True)
        + (num_kept_checkpoints(config, architecture) - 1) * checkpoint_bytes(config, architecture),
        "datasets": turns + others,
    }


def num_kept_checkpoints(config: StarPOConfig, architecture: Architecture) -> int:
    """Number of checkpoints that a run keeps, including the first and the last."""
    return len(kept_numbers(config.iterations, checkpoint_interval(config, architecture)))


def checkpoint_interval(config: StarPOConfig, architecture: Architecture | None) -> int:
    """Return `checkpoint_every`; if it is None, chosen from the size of a checkpoint: 1 if that is unknown."""
    if config.checkpoint_every is not None:
        return config.checkpoint_every
    is_small = architecture is None or checkpoint_bytes(config, architecture) <= SMALL_CHECKPOINT_BYTES
    return 1 if is_small else EVERY_LARGE_CHECKPOINT


def trained_parameters(config: StarPOConfig, architecture: Architecture) -> dict[str, int]:
    """Map 'policy', and the names of the trained companions, to the number of trained parameters."""
    lora, companions = config.update.lora, config.update.companions
    policy = (
        architecture.num_parameters if lora is None else architecture.num_adapter_parameters(lora.rank, lora.targets)
    )
    return {"policy": policy} | {one.name: one.num_trained(architecture, lora) for one in companions if one.is_trained}
