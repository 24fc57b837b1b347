"""The embedded visual policy: Qwen2's decoder, with the patches of an image as tokens of its context.

A patch's pixels are embedded linearly, and embeddings of its row and its column are added. There is no encoder: the
decoder itself relates patches to each other and to the text. Boards made of tiles need no more, with a tile as a patch.

Loading a folder of this type needs this module to be imported, which registers it with transformers.

Legend: I images, F patches of all images, H hidden size.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen2Model

from starpo.ragen.agents.vision.image_tokens import MODEL_TYPE, ImageTokens


class TinyVisionConfig(Qwen2Config):
    """Qwen2's configuration, and the image tokens (`ImageTokens`)."""

    model_type = MODEL_TYPE
    patch_size: int = 32
    max_patches: int = 32
    vision_start_token_id: int = 0
    image_token_id: int = 0
    vision_end_token_id: int = 0

    @classmethod
    def seeing(cls, tokens: ImageTokens, **sizes: Any) -> "TinyVisionConfig":
        """Return the configuration of a decoder of these sizes that reads these image tokens."""
        return cls(
            patch_size=tokens.patch_size,
            max_patches=tokens.max_patches,
            vision_start_token_id=tokens.start_id,
            image_token_id=tokens.image_id,
            vision_end_token_id=tokens.end_id,
            **sizes,
        )


class PatchEmbedding(nn.Module):
    """Embeds the patches of images."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.patch_size = config.patch_size
        self.pixels = nn.Linear(3 * self.patch_size**2, config.hidden_size)
        self.rows = nn.Embedding(config.max_patches, config.hidden_size)
        self.columns = nn.Embedding(config.max_patches, config.hidden_size)

    def forward(self, images: Sequence[Tensor]) -> Tensor:
        """Embed images, uint8 [height, width, 3] each, whose sides are multiples of the patch size.

        Returns:
            The patches of each image row by row, images one after the other, [F, H].
        """
        size = self.patch_size
        patches, places = [], []
        for image in images:
            rows, columns = image.shape[0] // size, image.shape[1] // size
            cut = image.unflatten(0, (rows, size)).unflatten(2, (columns, size)).transpose(1, 2)
            patches.append(cut.reshape(rows * columns, -1))
            places.append(torch.cartesian_prod(torch.arange(rows), torch.arange(columns)).view(-1, 2))
        place_F2 = torch.cat(places).to(self.rows.weight.device)
        weight = self.pixels.weight
        # scaled so that an untrained patch is about as long as an untrained token
        pixels = (torch.cat(patches).to(weight.dtype) / 127.5 - 1.0) * weight.shape[1] ** -0.5
        embedded: Tensor = self.pixels(pixels) + self.rows(place_F2[:, 0]) + self.columns(place_F2[:, 1])
        return embedded


class TinyVisionModel(Qwen2Model):
    """Qwen2's decoder without output layer, and the patch embedding."""

    config_class = TinyVisionConfig

    def __init__(self, config: TinyVisionConfig) -> None:
        super().__init__(config)
        self.vision = PatchEmbedding(config)
        self.post_init()

    def get_image_features(self, images: Sequence[Tensor]) -> Tensor:
        """Return the features of images, uint8 [height, width, 3] each, [F, H]."""
        features: Tensor = self.vision(images)
        return features


class TinyVisionForCausalLM(Qwen2ForCausalLM):
    """The embedded visual policy."""

    config_class = TinyVisionConfig

    def __init__(self, config: TinyVisionConfig) -> None:
        super().__init__(config)
        self.model = TinyVisionModel(config)
        self.post_init()


AutoConfig.register(MODEL_TYPE, TinyVisionConfig)
AutoModelForCausalLM.register(TinyVisionConfig, TinyVisionForCausalLM)
