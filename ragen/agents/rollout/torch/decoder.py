"""The decoder protocol: the engine's interface to a loaded model, with one implementation per kind of architecture.

    fused_decoder   Qwen2 and Llama: our own forward pass on fused weights, several times faster for small models
    module_decoder  any other causal language model of transformers, through its own forward pass

Tensor suffixes: B rows, N nodes of the prompt tree, U distinct rows, V vocabulary.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from torch import Tensor

from starpo.ragen.agents.rollout.torch.kv_cache import CacheShape, KVCache
from starpo.ragen.agents.rollout.torch.prompt_tree import PromptTree
from starpo.ragen.agents.vision.image import Image
from starpo.ragen.agents.vision.positions import Grid


class Decoder(Protocol):
    """A model that reads prompts and single tokens into a cache; it holds no batch state, so threads may share it."""

    cache_shape: CacheShape
    vocabulary_size: int
    max_positions: int

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Copy weights, by their names in a checkpoint, over the current ones.

        Raises:
            PolicyError: If one is missing or has the wrong shape; the decoder's weights are then invalid.
        """

    def image_features(self, images: Sequence[Image]) -> Tensor:
        """Compute the features of images, one for each of their tokens, [F, hidden width]."""

    def grids(self, images: Sequence[Image]) -> list[Grid] | None:
        """Return rows and columns of each image's tokens; None if positions are those of a plain sequence."""

    def prefill(self, tree: PromptTree, cache: KVCache, features: Tensor | None = None) -> Tensor:
        """Read the new tokens of every row, appending one block to the cache.

        Args:
            tree: The tokens; ids of images are `FIRST_IMAGE_ID` plus a row of the features.
            cache: Extended in place.
            features: Features of the images met so far; None if there are none.

        Returns:
            Logits after each row's last token, [U, V].
        """

    def step(self, tokens_B: Tensor, positions_B: np.ndarray, cache: KVCache) -> Tensor:
        """Read one token in each of the cache's first B rows, appending one column to the cache.

        Args:
            tokens_B: int64, on the model's device.
            positions_B: Position of each token in its context. int64
            cache: Rows from B on are not modified.

        Returns:
            Logits after each token, [B, V].
        """
