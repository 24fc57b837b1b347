"""The embedded visual policy: Qwen2's decoder, with the patches of an image as tokens of its context.

A patch is averaged down to a few cells, whose colours are embedded linearly, and embeddings of its row and its column
are added. There is no encoder: the decoder itself relates patches to each other and to the text. Boards made of tiles
need no more, with a tile as a patch.

Loading a folder of this type needs this module to be imported, which registers it with transformers.

Legend: F patches of all images, D numbers of a patch, H hidden size.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    PreTrainedTokenizerBase,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2Model,
)

from starpo.ragen.agents.vision.image import Image
from starpo.ragen.agents.vision.image_tokens import MODEL_TYPE, ImageTokens, PatchTokens
from starpo.ragen.agents.vision.positions import Grid
from starpo.ragen.core.errors import PolicyError


class TinyVisionConfig(Qwen2Config):
    """Qwen2's configuration, and the image tokens (`ImageTokens`)."""

    model_type = MODEL_TYPE
    patch_size: int = 32
    cells_per_side: int = 8
    max_patches: int = 32
    vision_start_token_id: int = 0
    image_token_id: int = 0
    vision_end_token_id: int = 0

    @classmethod
    def seeing(cls, tokens: PatchTokens, **sizes: Any) -> "TinyVisionConfig":
        """Return the configuration of a decoder of these sizes that reads these image tokens."""
        return cls(
            patch_size=tokens.patch_size,
            max_patches=tokens.max_patches,
            vision_start_token_id=tokens.before_ids[0],
            image_token_id=tokens.image_id,
            vision_end_token_id=tokens.after_ids[0],
            **sizes,
        )


class PatchEmbedding(nn.Module):
    """Embeds the patches of images."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.patch_size = config.patch_size
        self.cells_per_side = config.cells_per_side
        self._num_colours = 3 * self.cells_per_side**2
        self.colours = nn.Linear(self._num_colours, config.hidden_size)
        self.rows = nn.Embedding(config.max_patches, config.hidden_size)
        self.columns = nn.Embedding(config.max_patches, config.hidden_size)

    def forward(self, images: Sequence[Image]) -> Tensor:
        """Embed images whose sides are multiples of the patch size.

        Returns:
            The patches of each image row by row, images one after the other, [F, H].
        """
        patches, places = zip(*(_patches(image, self.patch_size, self.cells_per_side) for image in images), strict=True)
        weight = self.colours.weight
        # scaled so that an untrained patch is about as long as an untrained token
        colours_FD = torch.from_numpy(np.concatenate(patches)).to(weight) * self._num_colours**-0.5
        place_F2 = torch.from_numpy(np.concatenate(places)).to(weight.device)
        embedded: Tensor = self.colours(colours_FD) + self.rows(place_F2[:, 0]) + self.columns(place_F2[:, 1])
        return embedded


@lru_cache(maxsize=4096)
def _patches(image: Image, patch_size: int, cells_per_side: int) -> tuple[np.ndarray, np.ndarray]:
    """Cut an image into patches.

    Returns:
        Mean colours of the cells of each patch, from -1 to 1, float32 [patches, D]; its row and column, int64
        [patches, 2].
    """
    rows, columns, width = image.height // patch_size, image.width // patch_size, patch_size // cells_per_side
    cells = image.pixels.reshape(rows, cells_per_side, width, columns, cells_per_side, width, 3).mean((2, 5))
    colours = cells.transpose(0, 2, 1, 3, 4).reshape(rows * columns, -1)
    place = np.stack(np.divmod(np.arange(rows * columns), columns), axis=1)
    return (colours / 127.5 - 1.0).astype(np.float32), place


class TinyVisionModel(Qwen2Model):
    """Qwen2's decoder without output layer, and the patch embedding."""

    config_class = TinyVisionConfig

    def __init__(self, config: TinyVisionConfig) -> None:
        super().__init__(config)
        self.vision = PatchEmbedding(config)
        self.post_init()


class TinyVisionForCausalLM(Qwen2ForCausalLM):
    """The embedded visual policy."""

    config_class = TinyVisionConfig

    def __init__(self, config: TinyVisionConfig) -> None:
        super().__init__(config)
        self.model = TinyVisionModel(config)
        self.post_init()


class TinyVision:
    """The family of the embedded visual policy."""

    def processor(self, folder: Path) -> Any:
        """Return None."""
        return None

    def image_tokens(
        self, config: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase, processor: Any
    ) -> ImageTokens:
        """See `Family.image_tokens`."""
        return PatchTokens.of(config)

    def grid(self, processor: Any, image: Image) -> Grid | None:
        """Return None."""
        return None

    def num_deep(self, config: Any) -> int:
        """Return 0."""
        return 0

    def pixels(self, processor: Any, config: Any, image: Image) -> dict[str, Tensor]:
        """See `Family.pixels`; vLLM does not know it."""
        raise PolicyError("vLLM does not know the embedded policy that sees images: set rollout.engine = 'torch'")

    def features(self, backbone: Any, images: Sequence[Image]) -> Tensor:
        """See `Family.features`."""
        features: Tensor = backbone.vision(images)
        return features


AutoConfig.register(MODEL_TYPE, TinyVisionConfig)
AutoModelForCausalLM.register(TinyVisionConfig, TinyVisionForCausalLM)
