"""`SmolVLM`: the family of SmolVLM and SmolVLM2."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from starpo.ragen.agents.vision.family import load_processor
from starpo.ragen.agents.vision.image import Image
from starpo.ragen.agents.vision.image_tokens import ImageTokens
from starpo.ragen.agents.vision.positions import Grid
from starpo.ragen.core.errors import PolicyError


@dataclass(frozen=True)
class FixedTokens(ImageTokens):
    """Tokens of a policy that resizes every image to one size.

    Attributes:
        number: Number of placeholders of every image.
    """

    number: int

    def num_tokens(self, image: Image) -> int:
        """See `ImageTokens.num_tokens`."""
        return self.number


class SmolVLM:
    """SmolVLM and SmolVLM2. Images are resized to the encoder's size and never split into several."""

    _AROUND, _GLOBAL = "<fake_token_around_image>", "<global-img>"

    def image_tokens(
        self, config: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase, processor: Any
    ) -> ImageTokens:
        """See `Family.image_tokens`."""
        around, whole = cast(list[int], tokenizer.convert_tokens_to_ids([self._AROUND, self._GLOBAL]))
        if None in (around, whole) or tokenizer.unk_token_id in (around, whole):
            raise PolicyError(
                f"the tokenizer of '{tokenizer.name_or_path}' has no tokens {self._AROUND} and {self._GLOBAL}, which "
                "SmolVLM writes around an image; take the model's own tokenizer"
            )
        side = config["vision_config"]["image_size"] // config["vision_config"]["patch_size"]
        number = (side // config["scale_factor"]) ** 2
        return FixedTokens((around, whole), config["image_token_id"], (around,), number)

    def processor(self, folder: Path) -> Any:
        """See `Family.processor`."""
        return load_processor("SmolVLMImageProcessorPil", folder)

    def grid(self, processor: Any, image: Image) -> Grid | None:
        """Return None."""
        return None

    def num_deep(self, config: Any) -> int:
        """Return 0."""
        return 0

    def pixels(self, processor: Any, config: Any, image: Image) -> dict[str, Tensor]:
        """See `Family.pixels`."""
        prepared = self._prepared(processor, config, [image])
        return {
            "pixel_values": prepared["pixel_values"][0],
            "pixel_attention_mask": prepared["pixel_attention_mask"][0],
            "num_patches": torch.ones(1, dtype=torch.int64),
        }

    def features(self, backbone: Any, images: Sequence[Image]) -> Tensor:
        """See `Family.features`."""
        prepared = self._prepared(backbone.image_processor, backbone.config, images)
        # one image a row: [1, images, 3, height, width] -> [images, 1, 3, height, width]
        pixels, mask = (
            prepared[name].transpose(0, 1).to(backbone.device) for name in ("pixel_values", "pixel_attention_mask")
        )
        return torch.cat(list(backbone.get_image_features(pixels, mask, return_dict=True).pooler_output))

    def _prepared(self, processor: Any, config: Any, images: Sequence[Image]) -> Any:
        size = {"longest_edge": config.vision_config.image_size}
        return processor(
            [image.pixels for image in images],
            do_image_splitting=False,
            size=size,
            max_image_size=size,
            return_tensors="pt",
        )
