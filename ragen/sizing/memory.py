"""Memory of training and sampling in bytes: pure functions of sizes.

Legend: P parameters, T trained parameters, h, q, kv, i, L, V as in `ragen.sizing.architecture`.
"""

from dataclasses import dataclass
from typing import Literal

from starpo.ragen.sizing.architecture import Architecture, Vision

DType = Literal["float32", "bfloat16", "float16"]
BYTES: dict[DType, int] = {"float32": 4, "bfloat16": 2, "float16": 2}
ADAMW_BYTES = 8
"""Bytes per parameter: two float32 moments."""
MUON_BYTES = 4
"""Bytes per matrix entry: float32 momentum."""
_LOGIT_BYTES = 16
"""Bytes per logit while tokens are scored, entropies included: four float32 arrays. Measured: 16.1 bytes at M = 4000,
V = 20000 on a CPU. A gradient without an entropy bonus takes 12.1."""
_ENTROPY_LOGIT_BYTES = 20
"""Bytes per logit while the gradient of a loss with an entropy bonus is computed. Measured: 20.2 bytes."""
LOGITS_AT_A_TIME = 2**25
"""Copy of the constant in `ragen.learning.learners.models.scoring`, which imports torch."""


@dataclass(frozen=True)
class MemoryItem:
    """A consumer of memory.

    Attributes:
        name: Name of the part.
        size_bytes: Size in bytes.
        formula: Derivation of the size, in words and numbers.
    """

    name: str
    size_bytes: float
    formula: str


def scaled(parts: list[MemoryItem], factor: int) -> list[MemoryItem]:
    """Return the parts for `factor` of what uses them."""
    if factor == 1:
        return parts
    return [MemoryItem(part.name, part.size_bytes * factor, f"{part.formula} x {factor}") for part in parts]


def activation_bytes(
    architecture: Architecture, num_tokens: int, dtype: DType, *, is_recomputed: bool = False
) -> float:
    """Activations that one forward pass saves for the backward pass, in bytes, without the output layer.

        float32     4 (6h + 2q + 2kv + 4i + heads + 2) L bytes per token
        bfloat16   (16h + 2 (5h + 2q + 2kv + 4i) + 4 heads + 8) L bytes per token, and 2 (matrix parameters) for the
                   weight copies made by autocast: norms stay in float32, and q, k, v, gate and up each save their
                   input
        recomputed (activation checkpointing, Chen et al. 2016): 4h bytes per token and layer, and one whole layer

    This matches the count of torch's saved-tensor hooks on `transformers`' Qwen2 with scaled dot product attention (no
    mask, and no matrix of scores: `attention_bytes`) exactly, except for the final norm (8h bytes per token), which is
    added.

    Args:
        architecture: Architecture of the model.
        num_tokens: Tokens of the micro-batch, padding included.
        dtype: Dtype of the arithmetic.
        is_recomputed: Whether activation checkpointing is on.
    """
    h, q, kv, i = (
        getattr(architecture, name) for name in ("hidden_size", "query_size", "kv_size", "intermediate_size")
    )
    heads, layers = architecture.num_heads, architecture.num_layers
    if dtype == "float32":
        a_token, a_layer = 4.0 * (6 * h + 2 * q + 2 * kv + 4 * i + heads + 2), 0.0
    else:
        a_token = 16.0 * h + 2.0 * (5 * h + 2 * q + 2 * kv + 4 * i) + 4 * heads + 8
        a_layer = 2.0 * architecture.num_matrix_parameters / layers
    final_norm = 8.0 * h * num_tokens
    one_layer = a_token * num_tokens + a_layer
    if is_recomputed:
        return 4.0 * h * num_tokens * layers + one_layer + final_norm
    return one_layer * layers + final_norm


def image_bytes(vision: Vision, num_tokens: int, dtype: DType, *, is_recomputed: bool = False) -> float:
    """What the encoder of images keeps for the backward pass: its inputs in float32, and the activations of its layers.

        layers       as `activation_bytes`, with these differences per patch:
        fused        3h per layer: the array that queries, keys and values are cut from, and their results put together
                     again; 2 head_dim for positions
        LayerNorm    -2h per layer, and -h
        projections  `num_projections` h, as patches become tokens

    Within 1% of the count of torch's saved-tensor hooks on small SmolVLM, Qwen2.5-VL and Qwen3-VL in float32.

    Args:
        vision: What the model sees with.
        num_tokens: Tokens of the images, all different.
        dtype: Dtype of the arithmetic.
        is_recomputed: Whether activation checkpointing is on.
    """
    patches, sizes = num_tokens * vision.num_patches, vision.layers
    inputs = 4.0 * patches * vision.num_inputs
    if sizes is None:
        return inputs
    h = sizes.hidden_size
    a_layer = 3 * h * vision.is_fused - 2 * h * vision.has_layer_norms
    once = vision.num_projections * h + 2 * sizes.head_dim * vision.is_fused - h * vision.has_layer_norms
    differing = BYTES[dtype] * patches * (a_layer * (1 if is_recomputed else sizes.num_layers) + once)
    return inputs + activation_bytes(sizes, patches, dtype, is_recomputed=is_recomputed) + differing


def attention_bytes(
    architecture: Architecture,
    num_tokens: int,
    num_row_tokens: int,
    dtype: DType,
    *,
    is_fused: bool = True,
    is_recomputed: bool = False,
) -> float:
    """What attention keeps for the backward pass beyond `activation_bytes`, which counts a fused kernel without a mask.

        masked     b (R + 2 (q - kv)) L bytes per token, b = 4 or 2: every layer keeps the mask as an array of its own,
                   and keys and values repeated for all query heads. Rows that share prefixes have a mask
        not fused  4 (heads R + 2 (q - kv) - heads) L bytes per token: the scores of every token with its row, and the
                   same keys and values

    Without a mask, transformers leaves it to torch to share key heads among query heads (`enable_gqa`). On a GPU torch
    then has no fused kernel in float32: flash attention takes 16 bits only, memory-efficient attention no shared heads.

    Args:
        architecture: Architecture of the model.
        num_tokens: Tokens of the micro-batch, padding included.
        num_row_tokens: R, tokens of a row.
        dtype: Dtype of the arithmetic; float32 if not fused.
        is_fused: Whether the kernel is a fused one, with a mask.
        is_recomputed: Whether activation checkpointing is on; then only one layer counts.
    """
    heads = architecture.num_heads
    a_token = float(num_row_tokens if is_fused else heads * num_row_tokens - heads)
    a_token += 2 * (architecture.query_size - architecture.kv_size)
    return BYTES[dtype] * a_token * num_tokens * (1 if is_recomputed else architecture.num_layers)


def adapter_activation_bytes(
    architecture: Architecture,
    num_tokens: int,
    rank: int,
    targets: list[str] | None = None,
    *,
    is_recomputed: bool = False,
) -> float:
    """Additional activations of LoRA adapters: float32 inputs and inner products, 4 (inputs + rank) bytes per token.

    Args:
        architecture: Architecture of the model.
        num_tokens: Tokens of the micro-batch, padding included.
        rank: Rank of every adapter.
        targets: Names of the adapted projections; None for all of a layer.
        is_recomputed: Whether activation checkpointing is on; then only one layer counts.
    """
    a_token = sum(4.0 * (inputs + rank) for inputs, _ in architecture.adapted(targets))
    return a_token * num_tokens * (1 if is_recomputed else architecture.num_layers)


def logits_part(
    architecture: Architecture, num_response_tokens: int, *, has_entropy: bool, is_cut_up: bool = False
) -> MemoryItem:
    """Logits, log-probs and their gradients at response positions: 16 bytes per logit, 20 with an entropy bonus.

    Args:
        architecture: Architecture of the policy.
        num_response_tokens: M, response tokens of the micro-batch; at most all of its tokens.
        has_entropy: Whether the loss has an entropy bonus.
        is_cut_up: Whether weights are sharded over ranks (ZeRO 3). Then all M V logits exist at once, else only those
            of some positions at a time.
    """
    each = _ENTROPY_LOGIT_BYTES if has_entropy else _LOGIT_BYTES
    vocabulary = architecture.vocab_size
    num_at_a_time = num_response_tokens if is_cut_up else max(1, LOGITS_AT_A_TIME // vocabulary)
    if num_response_tokens <= num_at_a_time:
        formula = f"{each} M V, M = {num_response_tokens:,}, V = {vocabulary:,}"
    else:
        formula = f"{each} C V, C = {num_at_a_time:,} positions at a time, V = {vocabulary:,}"
    return MemoryItem("logits", float(each * min(num_response_tokens, num_at_a_time) * vocabulary), formula)


def kv_cache_bytes(architecture: Architecture, num_tokens: float, dtype: DType) -> float:
    """Size of the KV cache in bytes: 2 L kv bytes(dtype) per token."""
    return 2.0 * architecture.num_layers * architecture.kv_size * BYTES[dtype] * num_tokens


def optimiser_bytes(architecture: Architecture, num_trained: int, kind: str) -> float:
    """Size of optimiser states in bytes: 8 T for AdamW; for Muon, 4 per matrix entry and 8 per other parameter.

    Args:
        architecture: Architecture of the model.
        num_trained: T, number of trained parameters.
        kind: 'adamw' or 'muon'.
    """
    if kind == "muon":
        matrices = min(num_trained, architecture.num_matrix_parameters)
        return float(MUON_BYTES * matrices + ADAMW_BYTES * (num_trained - matrices))
    return float(ADAMW_BYTES * num_trained)


def zero_bytes(
    num_trained: int, stage: int, num_ranks: int, dtype: DType = "bfloat16", *, is_offloaded: bool = False
) -> dict[str, float]:
    """Bytes per rank of AdamW under ZeRO (Rajbhandari et al. 2020, 1910.02054, section 5 and Fig. 1).

        stage 1: bT + bT + 12T / N      stage 2: bT + (bT + 12T) / N      stage 3: (bT + bT + 12T) / N

    with N ranks: weights and gradients of b bytes (2 in bfloat16), and float32 weights with two moments (12 bytes) as
    optimiser states.

    Args:
        num_trained: T, number of trained parameters.
        stage: 1, 2 or 3.
        num_ranks: N, number of ranks.
        dtype: Dtype of weights and gradients.
        is_offloaded: Whether the optimiser states are offloaded to host memory.

    Returns:
        'weights', 'gradients' and 'optimiser' on a rank, and 'host', the host memory for this rank.
    """
    size, states = BYTES[dtype] * num_trained, 12.0 * num_trained / num_ranks
    return {
        "weights": size / (num_ranks if stage >= 3 else 1),
        "gradients": size / (num_ranks if stage >= 2 else 1),
        "optimiser": 0.0 if is_offloaded else states,
        "host": states if is_offloaded else 0.0,
    }
