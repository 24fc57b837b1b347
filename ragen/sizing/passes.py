"""Memory of one forward and backward pass over a micro-batch, part by part.

settings, architecture --> Pass --pass_parts--> parts
"""

import math
from dataclasses import dataclass

from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.config.update import LoraConfig
from starpo.ragen.sizing.architecture import Architecture
from starpo.ragen.sizing.memory import (
    DType,
    MemoryItem,
    activation_bytes,
    adapter_activation_bytes,
    attention_bytes,
    image_bytes,
    logits_part,
)
from starpo.ragen.sizing.tokens import IterationTokens


@dataclass(frozen=True)
class Pass:
    """A forward and backward pass over a micro-batch.

    Attributes:
        num_tokens: Tokens of the micro-batch, padding included.
        row_tokens: Maximum tokens of a row in which contexts share prefixes; 0 if none share any.
        dtype: Dtype of the arithmetic.
        lora: Adapters that are trained; None if all weights are.
        is_recomputed: Whether activation checkpointing is on.
        has_entropy: Whether the loss has an entropy bonus.
        is_cut_up: Whether weights are sharded over ranks (ZeRO 3).
    """

    num_tokens: int
    row_tokens: int
    dtype: DType
    lora: LoraConfig | None = None
    is_recomputed: bool = False
    has_entropy: bool = False
    is_cut_up: bool = False


def pass_parts(
    one: Pass, config: StarPOConfig, architecture: Architecture, tokens: IterationTokens, *, is_cpu: bool
) -> list[MemoryItem]:
    """Estimate the memory of a pass.

    Args:
        one: The pass.
        config: Settings of the run.
        architecture: Architecture of the policy.
        tokens: Tokens of an iteration.
        is_cpu: Whether it is computed on a CPU.
    """
    num_tokens, is_recomputed = one.num_tokens, one.is_recomputed
    recomputed = " recomputed" if is_recomputed else ""
    adapters = []
    if one.lora is not None:
        rank, targets = one.lora.rank, one.lora.targets
        kept = adapter_activation_bytes(architecture, num_tokens, rank, targets, is_recomputed=is_recomputed)
        adapters.append(MemoryItem("adapters' activations", kept, f"float32{recomputed}, rank {rank}"))
    return [
        *adapters,
        *_images(one, config, architecture, tokens),
        *_attention(one, architecture, tokens, is_cpu=is_cpu),
        MemoryItem(
            "activations",
            activation_bytes(architecture, num_tokens, one.dtype, is_recomputed=is_recomputed),
            f"{one.dtype}{recomputed}, {num_tokens:,} tokens of a micro-batch",
        ),
        logits_part(
            architecture,
            int(num_tokens * tokens.longest_response / tokens.longest_context),
            has_entropy=one.has_entropy,
            is_cut_up=one.is_cut_up,
        ),
    ]


def _images(one: Pass, config: StarPOConfig, architecture: Architecture, tokens: IterationTokens) -> list[MemoryItem]:
    """Estimate what the encoder of images keeps, if the images of a micro-batch are all different."""
    vision, agent = architecture.vision, config.agent
    if vision is None or not tokens.image:
        return []
    turns = agent.max_turns if agent.context == "full" else min(agent.window_turns, agent.max_turns)
    num_images = math.ceil(one.num_tokens / tokens.longest_context * turns)
    num_seen = num_images * tokens.image
    size = image_bytes(vision, num_seen, one.dtype, is_recomputed=one.is_recomputed)
    return [
        MemoryItem("activations of images", size, f"{num_images:,} images of {tokens.image} tokens in a micro-batch")
    ]


def _attention(one: Pass, architecture: Architecture, tokens: IterationTokens, *, is_cpu: bool) -> list[MemoryItem]:
    """Estimate what attention keeps on top, of whichever keeps more: rows that share prefixes, or one context a row."""
    heads = architecture.num_heads
    has_scores = one.dtype == "float32" and not is_cpu and architecture.num_kv_heads < heads
    row_tokens = tokens.longest_context if has_scores else one.row_tokens
    if not row_tokens:
        return []
    size = attention_bytes(
        architecture, one.num_tokens, row_tokens, one.dtype,
        is_fused=not has_scores, is_recomputed=one.is_recomputed,
    )  # fmt: skip
    what = f"scores of {heads} heads" if has_scores else "masks"
    return [MemoryItem("attention", size, f"{one.dtype}, {what}, rows of {row_tokens:,} tokens")]
