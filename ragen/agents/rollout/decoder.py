"""The decoder protocol: what the engine asks of a loaded model, and which implementation serves which architecture.

    fused_decoder   Qwen2 and Llama: our own forward pass on fused weights, several times faster for small models
    module_decoder  any other causal language model of transformers, through its own forward pass

Tensor suffixes: B rows, N nodes of the prompt tree, U distinct rows, V vocabulary.
"""

from collections.abc import Mapping
from typing import Protocol

import numpy as np
from torch import Tensor

from starpo.ragen.agents.rollout.kv_cache import CacheShape, KVCache
from starpo.ragen.agents.rollout.prompt_tree import PromptTree


class Decoder(Protocol):
    """A model that reads prompts and single tokens into a cache; without state of a batch, so threads may share it."""

    cache_shape: CacheShape
    vocabulary_size: int
    max_positions: int

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Copy weights, by their names in a checkpoint, over the present ones.

        Raises:
            PolicyError: If one is missing or of the wrong shape; the present weights are then not to be used.
        """

    def prefill(self, tree: PromptTree, cache: KVCache) -> Tensor:
        """Read the new tokens of every row, appending one block to the cache.

        Returns:
            Logits behind each row's last token, [U, V].
        """

    def step(self, tokens_B: Tensor, positions_B: np.ndarray, cache: KVCache) -> Tensor:
        """Read one token in each of the cache's first B rows, appending one column to the cache.

        Args:
            tokens_B: int64, on the model's device.
            positions_B: Place of each token in its context. int64
            cache: Its rows from B on are left alone.

        Returns:
            Logits behind each token, [B, V].
        """
