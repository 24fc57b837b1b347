"""Qwen2 and Llama with our own forward pass: for small models, most of the time of a general one is overhead.

It is fast for these reasons: query, key and value (and gate and up) are one matrix, with the weight of the preceding
norm folded in; rotary embeddings are one in-place complex product (the weights' rows are permuted once, so that the two
numbers that are rotated together are adjacent, which leaves attention scores unchanged); key-value heads are not
repeated; keys are written as a slice; and the last layer of a prefill computes everything but keys and values only for
the tokens whose logits are needed.

Tensor suffixes: B rows, U distinct rows, N nodes of the prompt tree, E hidden width, H key-value heads, G query heads
of each, D width of a head, T slots, V vocabulary, Q all of query, key and value.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from starpo.ragen.agents.rollout.torch.kv_cache import CacheShape, KVCache
from starpo.ragen.agents.rollout.torch.prompt_tree import PromptTree
from starpo.ragen.agents.vision.embeddings import embed
from starpo.ragen.agents.vision.image import Image
from starpo.ragen.agents.vision.image_tokens import MODEL_TYPE
from starpo.ragen.core.errors import PolicyError

if TYPE_CHECKING:
    from starpo.ragen.agents.vision.tiny_vision import PatchEmbedding

_CHUNK = 1024
"""Tokens that pass a feed-forward layer together in a prefill, so that activations stay in the CPU's cache."""


@dataclass(frozen=True)
class _Layer:
    qkv: Tensor  # [Q, E]
    qkv_bias: Tensor | None  # [Q]
    attention_out: Tensor  # [E, H * G * D]
    gate_up: Tensor  # [2 * intermediate, E]
    down: Tensor  # [E, intermediate]


class FusedDecoder:
    """Implements `ragen.agents.rollout.torch.decoder.Decoder` for the models that `is_supported` names."""

    def __init__(self, config: Any, device: torch.device, dtype: torch.dtype) -> None:
        """Allocate the weights for a transformers config; `load_weights` fills them."""
        self.vocabulary_size = config.vocab_size
        self.max_positions = config.max_position_embeddings
        self._eps = torch.full((1,), config.rms_norm_eps, device=device)
        self._is_tied = config.tie_word_embeddings
        self._H = config.num_key_value_heads
        self._G = config.num_attention_heads // self._H
        self._D = _head_dim(config)
        self._query_size = self._H * self._G * self._D
        self.cache_shape = CacheShape(config.num_hidden_layers, self._H, self._D, dtype, device)

        def empty(*shape: int) -> Tensor:
            return torch.empty(shape, dtype=dtype, device=device)

        E, intermediate, Q = config.hidden_size, config.intermediate_size, self._query_size + 2 * self._H * self._D
        has_bias = config.model_type != "llama"
        self._vision = _vision(config, device, dtype) if config.model_type == MODEL_TYPE else None
        self._layers = [
            _Layer(
                qkv=empty(Q, E),
                qkv_bias=empty(Q) if has_bias else None,
                attention_out=empty(E, self._query_size),
                gate_up=empty(2 * intermediate, E),
                down=empty(E, intermediate),
            )
            for _ in range(config.num_hidden_layers)
        ]
        self._embedding = empty(config.vocab_size, E)
        self._norm = empty(E)
        self._head = self._embedding if self._is_tied else empty(config.vocab_size, E)
        frequencies = 1.0 / config.rope_parameters["rope_theta"] ** (torch.arange(0, self._D, 2).float() / self._D)
        angles = torch.outer(torch.arange(config.max_position_embeddings).float(), frequencies)
        self._rotations = torch.polar(torch.ones_like(angles), angles).to(device)  # complex [positions, D / 2]

    @staticmethod
    def is_supported(config: Any) -> bool:
        """Whether a model of this transformers config is computed exactly here."""
        rope = getattr(config, "rope_parameters", None) or {}
        layer_types = getattr(config, "layer_types", None) or ["full_attention"]
        return (
            config.model_type in ("qwen2", "llama", MODEL_TYPE)
            and config.hidden_act == "silu"
            and rope.get("rope_type") == "default"
            and rope.get("partial_rotary_factor", 1.0) == 1.0
            and set(layer_types) == {"full_attention"}
            and not getattr(config, "attention_bias", False)
            and not getattr(config, "mlp_bias", False)
        )

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """See `Decoder.load_weights`."""
        _copy(self._embedding, weights, "model.embed_tokens.weight")
        _copy(self._norm, weights, "model.norm.weight")
        if not self._is_tied:
            _copy(self._head, weights, "lm_head.weight")
        for name, parameter in self._vision.named_parameters() if self._vision is not None else ():
            _copy(parameter, weights, f"model.vision.{name}")
        for number, layer in enumerate(self._layers):
            name = f"model.layers.{number}."
            _copy(layer.attention_out, weights, name + "self_attn.o_proj.weight")
            _copy(layer.down, weights, name + "mlp.down_proj.weight")
            for part, target in zip(("gate", "up"), layer.gate_up.chunk(2), strict=True):
                _copy(target, weights, f"{name}mlp.{part}_proj.weight")
            parts = {"weight": layer.qkv} if layer.qkv_bias is None else {"weight": layer.qkv, "bias": layer.qkv_bias}
            for kind, fused in parts.items():
                kv_size = self._H * self._D
                query, key, value = fused.split([self._query_size, kv_size, kv_size])
                for part, target in (("q", query), ("k", key), ("v", value)):
                    _copy(target, weights, f"{name}self_attn.{part}_proj.{kind}")
                for target in (query, key):
                    target.copy_(self._neighbours(target))
            for norm, matrix in (("input", layer.qkv), ("post_attention", layer.gate_up)):
                scales = torch.empty_like(matrix[0])
                _copy(scales, weights, f"{name}{norm}_layernorm.weight")
                matrix.mul_(scales)

    def image_features(self, images: Sequence[Image]) -> Tensor:
        """See `Decoder.image_features`."""
        assert self._vision is not None, "only a policy that sees is shown images"
        features: Tensor = self._vision(images)
        return features

    def grids(self, images: Sequence[Image]) -> None:
        """See `Decoder.grids`; return None."""

    def prefill(self, tree: PromptTree, cache: KVCache, features: Tensor | None = None) -> Tensor:
        """See `Decoder.prefill`."""
        device = self.cache_shape.device
        places_N, last_U = (torch.from_numpy(array).to(device) for array in (tree.places, tree.last_nodes))
        num_rows, width = tree.nodes.shape
        nodes = torch.from_numpy(tree.nodes.ravel()).to(device)
        rotations_N1 = self._rotations[torch.from_numpy(tree.positions).to(device)][:, None]
        num_carried = cache.num_slots
        slots = cache.append_block(tree.lengths, width)
        kept, bias_R1T = cache.in_use(num_rows), self._row_bias(cache, num_rows)
        mask = _causal_mask(cache.bias_BT[:num_rows, : cache.num_slots], num_carried, width) if num_carried else None

        tokens_N = torch.from_numpy(tree.tokens).to(device)
        if features is None:
            x_NE = F.embedding(tokens_N, self._embedding)
        else:
            x_NE = embed(tokens_N, lambda ids: F.embedding(ids, self._embedding), features)
        for number, layer in enumerate(self._layers):
            is_last = number == len(self._layers) - 1
            qkv_NQ = self._project(layer, x_NE, rotations_N1)
            kv = qkv_NQ[:, self._query_size :].index_select(0, nodes)
            cache.buffer[number, :, :num_rows, :, slots] = kv.view(num_rows, width, 2, self._H, self._D).permute(
                2, 0, 3, 1, 4
            )
            if is_last:
                attended = self._attend_one(qkv_NQ[last_U], kept[number], bias_R1T)
                x_NE = x_NE[last_U]
            else:
                query = qkv_NQ[:, : self._query_size].index_select(0, nodes).view(num_rows, width, -1, self._D)
                keys, values = kept[number]
                attended_rows = F.scaled_dot_product_attention(
                    query.transpose(1, 2),
                    keys,
                    values,
                    attn_mask=mask,
                    is_causal=mask is None,
                    enable_gqa=True,
                )
                attended = attended_rows.transpose(1, 2).reshape(num_rows * width, -1).index_select(0, places_N)
            for x, part in zip(x_NE.split(_CHUNK), attended.split(_CHUNK), strict=True):
                self._finish(layer, x, part)
        return self._logits(x_NE)

    def step(self, tokens_B: Tensor, positions_B: np.ndarray, cache: KVCache) -> Tensor:
        """See `Decoder.step`."""
        num_rows = len(tokens_B)
        positions = torch.from_numpy(positions_B).to(self.cache_shape.device)
        rotations_B1 = self._rotations.index_select(0, positions)[:, None]
        columns = cache.buffer[:, :, :num_rows, :, cache.append_column()].transpose(1, 2)  # [layers, B, 2, H, D]
        kept, bias_R1T = cache.in_use(num_rows), self._row_bias(cache, num_rows)
        x_BE = F.embedding(tokens_B, self._embedding)
        for number, layer in enumerate(self._layers):
            qkv_BQ = self._project(layer, x_BE, rotations_B1)
            columns[number].copy_(qkv_BQ[:, self._query_size :].view(num_rows, 2, self._H, self._D))
            self._finish(layer, x_BE, self._attend_one(qkv_BQ, kept[number], bias_R1T))
        return self._logits(x_BE)

    def _project(self, layer: _Layer, x_NE: Tensor, rotations_N1: Tensor) -> Tensor:
        """Compute query, key and value of each token, query and key rotated to its position."""
        qkv_NQ = F.linear(self._normed(x_NE), layer.qkv, layer.qkv_bias)
        rotated = qkv_NQ[:, : self._query_size + self._H * self._D]
        pairs = rotated.unflatten(-1, (-1, self._D // 2, 2))
        if rotated.dtype == torch.float32:
            torch.view_as_complex(pairs).mul_(rotations_N1)
        else:  # torch has no complex bfloat16, and hardly a complex float16
            pairs.copy_(torch.view_as_real(torch.view_as_complex(pairs.float()) * rotations_N1))
        return qkv_NQ

    def _row_bias(self, cache: KVCache, num_rows: int) -> Tensor:
        """Return the cache's bias for `_attend_one`, [B * H, 1, T]."""
        return cache.bias_BT[:num_rows, None, : cache.num_slots].repeat_interleave(self._H, 0)

    def _attend_one(self, qkv_BQ: Tensor, kept: Tensor, bias_R1T: Tensor) -> Tensor:
        """Attend from one token per row to all slots in use.

        Args:
            qkv_BQ: Query, key and value of these tokens.
            kept: This layer's keys and values, [2, B, H, T, D].
            bias_R1T: From `_row_bias`.

        Returns:
            [B, H * G * D]
        """
        num_rows = len(qkv_BQ)
        query = qkv_BQ[:, : self._query_size].reshape(num_rows * self._H, self._G, self._D)
        keys, values = kept.flatten(1, 2)
        scores = torch.baddbmm(bias_R1T, query, keys.transpose(1, 2), alpha=self._D**-0.5)
        return torch.bmm(scores.softmax(-1), values).view(num_rows, -1)

    def _finish(self, layer: _Layer, x_NE: Tensor, attended: Tensor) -> None:
        """Add the attention's output and the feed-forward layer's to `x_NE`, in place."""
        x_NE.addmm_(attended, layer.attention_out.t())
        gate, up = F.linear(self._normed(x_NE), layer.gate_up).chunk(2, -1)
        x_NE.addmm_(F.silu(gate).mul_(up), layer.down.t())

    def _logits(self, x_BE: Tensor) -> Tensor:
        return F.linear(self._normed(x_BE).mul_(self._norm), self._head)

    def _normed(self, x_NE: Tensor) -> Tensor:
        """RMSNorm without its weight, which is folded into the next matrix; takes half the time of torch's own."""
        norms_N1 = torch.linalg.vector_norm(x_NE, dim=-1, keepdim=True, dtype=torch.float32)
        mean_squares_N1 = torch.addcmul(self._eps, norms_N1, norms_N1, value=1 / x_NE.shape[-1])
        return x_NE * mean_squares_N1.rsqrt_().to(x_NE.dtype)

    def _neighbours(self, rows: Tensor) -> Tensor:
        """Reorder each head's rows (0, 1, ..., D-1) to (0, D/2, 1, D/2 + 1, ...)."""
        return rows.unflatten(0, (-1, 2, self._D // 2)).transpose(1, 2).flatten(0, 2)


def _vision(config: Any, device: torch.device, dtype: torch.dtype) -> "PatchEmbedding":
    from starpo.ragen.agents.vision.tiny_vision import PatchEmbedding

    with torch.device("meta"):  # without random weights, which would draw from torch's global generator
        vision = PatchEmbedding(config)
    return vision.to_empty(device=device).to(dtype)


def _head_dim(config: Any) -> int:
    return getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads


def _causal_mask(bias_UT: Tensor, num_carried: int, width: int) -> Tensor:
    """Return the bias to add to the attention scores of the new tokens, [U, 1, new tokens, T]."""
    causal = torch.full((width, width), -torch.inf, dtype=bias_UT.dtype, device=bias_UT.device).triu_(1)
    mask = bias_UT[:, None, None].expand(-1, 1, width, -1).clone()
    # Gaps after a row's end stay visible only to the queries at these gaps, whose results are not used.
    mask[..., num_carried:] = causal
    return mask


def _copy(target: Tensor, weights: Mapping[str, Tensor], name: str) -> None:
    if name not in weights:
        raise PolicyError(f"the checkpoint has no weight '{name}'; its config and its weights do not belong together")
    weight = weights[name]
    if weight.shape != target.shape:
        raise PolicyError(
            f"the checkpoint's weight '{name}' has shape {list(weight.shape)}, its config asks for "
            f"{list(target.shape)}; they do not belong together"
        )
    target.copy_(weight)
