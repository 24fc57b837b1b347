"""Bytes of what training and sampling hold in memory: pure functions of sizes.

Legend: P parameters, T trained parameters, h, q, kv, i, L, V as in `ragen.evidence.sizing.architecture`.
"""

from dataclasses import dataclass
from typing import Literal

from starpo.ragen.evidence.sizing.architecture import Architecture

DType = Literal["float32", "bfloat16"]
BYTES: dict[DType, int] = {"float32": 4, "bfloat16": 2}
ADAMW_BYTES = 8
"""A parameter's two moments in float32."""
MUON_BYTES = 4
"""A matrix entry's momentum in float32."""
_LOGIT_BYTES = 16
"""An entry of the logits while tokens are scored, entropies included: four float32 arrays. Measured: 16.1 bytes at
M = 4000, V = 20000 on a CPU. A gradient without an entropy bonus takes 12.1."""
_ENTROPY_LOGIT_BYTES = 20
"""The same while the gradient of a loss with an entropy bonus is taken. Measured: 20.2 bytes."""
LOGITS_AT_A_TIME = 2**25
"""As `ragen.learning.learners.scoring` has it, which imports torch."""


@dataclass(frozen=True)
class Part:
    """Something that takes up memory.

    Attributes:
        name: What it is.
        size_bytes: How much.
        formula: How that was found, in words and numbers.
    """

    name: str
    size_bytes: float
    formula: str


def activation_bytes(
    architecture: Architecture, num_tokens: int, dtype: DType, *, is_recomputed: bool = False
) -> float:
    """What one forward pass keeps for its backward pass, output layer left out.

        float32     4 (6h + 2q + 2kv + 4i + heads + 2) L bytes a token
        bfloat16   (16h + 2 (5h + 2q + 2kv + 4i) + 4 heads + 8) L bytes a token, and 2 (matrix parameters) for the
                   copies that autocast makes of the weights: norms stay in float32, and q, k, v, gate and up each keep
                   their input
        recomputed (activation checkpointing, Chen et al. 2016): 4h bytes a token and layer, and one whole layer

    It is what torch's saved-tensor hooks count on `transformers`' Qwen2 with scaled dot product attention (no matrix of
    attention scores is kept), exactly but for the final norm (8h a token), which is added.

    Args:
        architecture: Of the model.
        num_tokens: Of the micro-batch, padding included.
        dtype: Of the arithmetic.
        is_recomputed: Is activation checkpointing on?
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


def adapter_activation_bytes(
    architecture: Architecture,
    num_tokens: int,
    rank: int,
    targets: list[str] | None = None,
    *,
    is_recomputed: bool = False,
) -> float:
    """What LoRA adapters keep besides: their inputs and inner products in float32, 4 (inputs + rank) a token.

    Args:
        architecture: Of the model.
        num_tokens: Of the micro-batch, padding included.
        rank: Of every adapter.
        targets: Names of the adapted maps; None: all of a layer.
        is_recomputed: Is activation checkpointing on? Then one layer's.
    """
    a_token = sum(4.0 * (inputs + rank) for inputs, _ in architecture.adapted(targets))
    return a_token * num_tokens * (1 if is_recomputed else architecture.num_layers)


def logits_part(
    architecture: Architecture, num_response_tokens: int, *, has_entropy: bool, is_cut_up: bool = False
) -> Part:
    """Logits, log-probs and their gradients at response positions: 16 bytes a logit, 20 with an entropy bonus.

    Args:
        architecture: Of the policy.
        num_response_tokens: M, of the micro-batch; at most its tokens.
        has_entropy: Is the entropy in the loss?
        is_cut_up: Are weights cut up over ranks (ZeRO 3)? Then all M V are there at once, else those of some positions.
    """
    each = _ENTROPY_LOGIT_BYTES if has_entropy else _LOGIT_BYTES
    vocabulary = architecture.vocab_size
    num_at_a_time = num_response_tokens if is_cut_up else max(1, LOGITS_AT_A_TIME // vocabulary)
    if num_response_tokens <= num_at_a_time:
        formula = f"{each} M V, M = {num_response_tokens:,}, V = {vocabulary:,}"
    else:
        formula = f"{each} C V, C = {num_at_a_time:,} positions at a time, V = {vocabulary:,}"
    return Part("logits", float(each * min(num_response_tokens, num_at_a_time) * vocabulary), formula)


def kv_cache_bytes(architecture: Architecture, num_tokens: float, dtype: DType) -> float:
    """Keys and values of tokens in all layers: 2 L kv bytes(dtype) a token."""
    return 2.0 * architecture.num_layers * architecture.kv_size * BYTES[dtype] * num_tokens


def optimiser_bytes(architecture: Architecture, num_trained: int, kind: str) -> float:
    """Optimiser states: 8 T for AdamW; with Muon 4 for entries of matrices and 8 for the rest.

    Args:
        architecture: Of the model.
        num_trained: T.
        kind: 'adamw' or 'muon'.
    """
    if kind == "muon":
        matrices = min(num_trained, architecture.num_matrix_parameters)
        return float(MUON_BYTES * matrices + ADAMW_BYTES * (num_trained - matrices))
    return float(ADAMW_BYTES * num_trained)


def zero_bytes(
    num_trained: int, stage: int, num_ranks: int, dtype: DType = "bfloat16", *, is_offloaded: bool = False
) -> dict[str, float]:
    """Bytes a rank of AdamW under ZeRO (Rajbhandari et al. 2020, 1910.02054, section 5 and Fig. 1).

        stage 1: bT + bT + 12T / N      stage 2: bT + (bT + 12T) / N      stage 3: (bT + bT + 12T) / N

    with N ranks: weights and gradients of b bytes (2 in bfloat16), and float32 weights with two moments (12 bytes) as
    optimiser states.

    Args:
        num_trained: T.
        stage: 1, 2 or 3.
        num_ranks: N.
        dtype: Of weights and gradients.
        is_offloaded: Are the optimiser states in the host's memory?

    Returns:
        'weights', 'gradients', 'optimiser' on a rank, and 'host' in its machine's memory for this rank.
    """
    size, states = BYTES[dtype] * num_trained, 12.0 * num_trained / num_ranks
    return {
        "weights": size / (num_ranks if stage >= 3 else 1),
        "gradients": size / (num_ranks if stage >= 2 else 1),
        "optimiser": 0.0 if is_offloaded else states,
        "host": states if is_offloaded else 0.0,
    }
