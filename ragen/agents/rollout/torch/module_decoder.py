"""Any causal language model of transformers with its own forward pass, on the engine's cache.

Slower than `fused_decoder`, and correct for every architecture that keeps the keys and values of all tokens in all
layers and relies on position ids and masks, not on slots in the cache; others are rejected.

Tensor suffixes: B rows, U distinct rows, T slots or new tokens, V vocabulary.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from starpo.ragen.agents.rollout.torch.kv_cache import CacheShape, KVCache
from starpo.ragen.agents.rollout.torch.prompt_tree import PromptTree, grow_prompt_tree
from starpo.ragen.agents.vision.embeddings import grids_of, image_features, inputs_with
from starpo.ragen.agents.vision.image import Image
from starpo.ragen.agents.vision.positions import Grid
from starpo.ragen.core.errors import PolicyError

_PROMPT_LENGTHS = (2, 5)
_NUM_EMPTY_SLOTS = 512
"""Empty slots between prompts and the next token in the check: more than any window that a module applies by itself."""
_TOLERANCE = 0.01
_TOLERANCE_16_BITS = 0.15
"""Tolerances of the check, in standard deviations of a token's logits. Rounding causes gaps of 1e-6 (32 bits) and 0.02
(16 bits), missing context one of 0.3."""
_USE_ANOTHER = "use another engine or another model"


class ModuleDecoder:
    """Implements `ragen.agents.rollout.torch.decoder.Decoder` on a transformers module."""

    def __init__(self, model: PreTrainedModel, device: torch.device, dtype: torch.dtype) -> None:
        """Take over the model; `load_weights` replaces its weights.

        Raises:
            PolicyError: If the model stores its context in any form other than keys and values of every token, or if
                its logits on the engine's cache differ from its own.
        """
        module: Any = model  # transformers hides the signature of `to`
        self._model: Any = module.to(device, dtype).eval()
        name = model.config.model_type
        try:
            self.vocabulary_size = model.get_output_embeddings().weight.shape[0]
            self.max_positions = model.config.get_text_config().max_position_embeddings
            self.cache_shape = _probed_shape(self._model, device, dtype)
            gap = self._largest_gap()
        except (PolicyError, torch.OutOfMemoryError):
            raise
        except Exception as error:  # modules of transformers report unsupported inputs with exceptions of many types
            raise PolicyError(
                f"the torch engine cannot run the architecture '{name}' ({type(error).__name__}: "
                f"{(str(error).splitlines() or [''])[0]}); {_USE_ANOTHER}"
            ) from error
        tolerance = _TOLERANCE if dtype.itemsize > 2 else _TOLERANCE_16_BITS
        if not gap <= tolerance:
            raise PolicyError(
                f"the architecture '{name}' gives other logits on the torch engine's cache than in its own forward "
                f"pass: they differ by {gap:.2g} standard deviations, and at most {tolerance:g} is rounding. It may "
                f"count positions in the cache itself, as sliding windows or position biases do; {_USE_ANOTHER}"
            )

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """See `Decoder.load_weights`."""
        try:
            missing, _ = self._model.load_state_dict(dict(weights), strict=False)
        except RuntimeError as error:
            raise PolicyError(
                f"the checkpoint's weights do not fit its config: {str(error).splitlines()[-1]}"
            ) from error
        untied = set(missing) - set(getattr(self._model, "all_tied_weights_keys", {}))
        if untied:
            raise PolicyError(
                f"the checkpoint has no weight '{min(untied)}'; its config and its weights do not belong together"
            )

    def image_features(self, images: Sequence[Image]) -> Tensor:
        """See `Decoder.image_features`."""
        return image_features(self._model.base_model, images)

    def grids(self, images: Sequence[Image]) -> list[Grid] | None:
        """See `Decoder.grids`."""
        return grids_of(self._model.base_model, images)

    def prefill(self, tree: PromptTree, cache: KVCache, features: Tensor | None = None) -> Tensor:
        """See `Decoder.prefill`. Rows are padded on the right; prefixes are not shared."""
        num_rows, width = tree.nodes.shape
        slots = cache.append_block(tree.lengths, width)
        mask = cache.bias_BT[:num_rows, None, None, : cache.num_slots].repeat(1, 1, width, 1)
        mask[..., slots] = torch.full((width, width), -torch.inf, dtype=mask.dtype, device=mask.device).triu_(1)
        last_U = tree.lengths - 1
        wanted, which_U = np.unique(last_U, return_inverse=True)
        window = _Window(cache, slots, num_rows)
        positions = tree.positions[..., tree.nodes]
        logits = self._forward(tree.tokens[tree.nodes], positions, mask, window, wanted, features)
        return logits[torch.arange(num_rows), torch.from_numpy(which_U)]

    def step(self, tokens_B: Tensor, positions_B: np.ndarray, cache: KVCache) -> Tensor:
        """See `Decoder.step`."""
        slot = cache.append_column()
        mask = cache.bias_BT[: len(tokens_B), None, None, : cache.num_slots]
        window = _Window(cache, slice(slot, slot + 1), len(tokens_B))
        return self._forward(tokens_B[:, None], positions_B[:, None], mask, window, np.zeros(1, dtype=np.int64))[:, 0]

    @torch.inference_mode()
    def _largest_gap(self) -> float:
        """Read two prompts of different lengths and one token after each; compare with the module's own forward pass.

        Returns:
            The largest mean absolute difference of a token's logits, in standard deviations of the logits.
        """
        rng = np.random.default_rng(0)
        lengths = np.array(_PROMPT_LENGTHS)
        contexts = [rng.integers(self.vocabulary_size, size=length + 1) for length in lengths]
        num_empty = min(_NUM_EMPTY_SLOTS, self.max_positions - max(_PROMPT_LENGTHS) - 1)
        cache = KVCache(self.cache_shape, len(lengths), max(_PROMPT_LENGTHS) + num_empty + 1)
        cache.buffer.zero_()  # the empty slots are never written, and masked values still enter the product
        tree = grow_prompt_tree([context[:-1] for context in contexts], np.zeros_like(lengths))
        logits = [self.prefill(tree, cache)]
        cache.append_block(np.zeros_like(lengths), num_empty)
        last_B = torch.tensor([context[-1] for context in contexts], device=self.cache_shape.device)
        logits.append(self.step(last_B, lengths, cache))
        largest = 0.0
        for row, context in enumerate(contexts):
            input_ids = torch.as_tensor(context, device=self.cache_shape.device)[None]
            own_logits = self._model(input_ids=input_ids, use_cache=False).logits[0, -2:].float()
            if own_logits.isfinite().all():  # the session reports a policy that has diverged
                for ours, expected in zip(logits, own_logits, strict=True):
                    gap = (ours[row].float() - expected).abs().mean() / expected.std().clamp(min=1e-6)
                    largest = max(largest, float(gap.nan_to_num(torch.inf)))
        return largest

    def _forward(
        self,
        tokens: np.ndarray | Tensor,
        positions: np.ndarray,
        mask: Tensor,
        window: "_Window",
        wanted: np.ndarray,
        features: Tensor | None = None,
    ) -> Tensor:
        """Compute the logits at the columns `wanted`, [rows, wanted, V]."""
        device = self.cache_shape.device
        ids = torch.as_tensor(tokens, device=device)
        inputs = {"input_ids": ids} if features is None else inputs_with(self._model, ids, features)
        return self._model(
            **inputs,
            position_ids=torch.as_tensor(positions, device=device),
            attention_mask=mask.clamp(min=torch.finfo(mask.dtype).min),
            past_key_values=window,
            use_cache=True,
            logits_to_keep=torch.as_tensor(wanted, device=device),
        ).logits


class _Window(DynamicCache):
    """The slots of a `KVCache` that one forward pass writes, with the interface of transformers' cache."""

    def __init__(self, cache: KVCache, slots: slice, num_rows: int) -> None:
        super().__init__()
        self._cache, self._slots, self._num_rows = cache, slots, num_rows

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Write one layer's keys and values; return those of all slots in use."""
        keys, values = self._cache.in_use(self._num_rows)[layer_idx]
        keys[:, :, self._slots], values[:, :, self._slots] = key_states, value_states
        return keys, values

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return the number of slots before this pass."""
        return self._slots.start


def _probed_shape(model: Any, device: torch.device, dtype: torch.dtype) -> CacheShape:
    """Determine the shape of the model's cache by reading one token."""
    with torch.inference_mode():
        kept = model(input_ids=torch.zeros((1, 1), dtype=torch.int64, device=device), use_cache=True).past_key_values
    layers = getattr(kept, "layers", [])
    keys = [layer.keys for layer in layers if isinstance(getattr(layer, "keys", None), Tensor)]
    is_plain = len(keys) == len(layers) and not any(getattr(layer, "is_sliding", False) for layer in layers)
    if not is_plain or len({part.shape for part in keys}) != 1:
        raise PolicyError(
            f"the architecture '{model.config.model_type}' does not keep keys and values of every token in every "
            f"layer, as the torch engine needs; {_USE_ANOTHER}"
        )
    _, num_kv_heads, _, head_dim = keys[0].shape
    return CacheShape(len(keys), num_kv_heads, head_dim, dtype, device)
