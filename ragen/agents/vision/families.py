"""Families of models that see: how each prepares an image, and where its placeholders are.

    folder -> family_of -> Family: image tokens for prompts; features of images for `embeddings`

To add a family whose positions are those of a plain sequence, write a class and a line of `FAMILIES`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from starpo.ragen.agents.vision.image import Image
from starpo.ragen.agents.vision.image_tokens import MODEL_TYPE, FixedTokens, ImageTokens, PatchTokens
from starpo.ragen.core.errors import PolicyError


class Family(Protocol):
    """A family of models; without state."""

    def image_tokens(self, config: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase) -> ImageTokens:
        """Return the tokens of an image, for a model's `config.json`.

        Raises:
            PolicyError: If configuration and tokenizer do not say them.
        """

    def processor(self, folder: Path) -> Any:
        """Load what prepares images from a policy's folder; None if nothing is needed.

        Raises:
            PolicyError: If it is missing or damaged.
        """

    def features(self, backbone: Any, images: Sequence[Image]) -> Tensor:
        """Compute the features of images, one row for each placeholder, in the order of the images."""


class TinyVision:
    """The embedded visual policy."""

    def image_tokens(self, config: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase) -> ImageTokens:
        """See `Family.image_tokens`."""
        return PatchTokens.of(config)

    def processor(self, folder: Path) -> Any:
        """Return None."""
        return None

    def features(self, backbone: Any, images: Sequence[Image]) -> Tensor:
        """See `Family.features`."""
        features: Tensor = backbone.vision(images)
        return features


class SmolVLM:
    """SmolVLM and SmolVLM2. Images are resized to the encoder's size and never split into several."""

    _AROUND, _GLOBAL = "<fake_token_around_image>", "<global-img>"

    def image_tokens(self, config: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase) -> ImageTokens:
        """See `Family.image_tokens`."""
        around, whole = tokenizer.convert_tokens_to_ids([self._AROUND, self._GLOBAL])
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
        from transformers import SmolVLMImageProcessorPil

        from starpo.ragen.agents.policy.folder import refusing

        with refusing(f"the image processor in '{folder}' cannot be read"):
            return SmolVLMImageProcessorPil.from_pretrained(folder, local_files_only=True)

    def features(self, backbone: Any, images: Sequence[Image]) -> Tensor:
        """See `Family.features`."""
        size = {"longest_edge": backbone.config.vision_config.image_size}
        prepared = backbone.image_processor(
            [image.pixels for image in images],
            do_image_splitting=False,
            size=size,
            max_image_size=size,
            return_tensors="pt",
        )
        # one image a row: [1, images, 3, height, width] -> [images, 1, 3, height, width]
        pixels, mask = (
            prepared[name].transpose(0, 1).to(backbone.device) for name in ("pixel_values", "pixel_attention_mask")
        )
        return torch.cat(list(backbone.get_image_features(pixels, mask, return_dict=True).pooler_output))


FAMILIES: dict[str, Family] = {MODEL_TYPE: TinyVision(), "smolvlm": SmolVLM()}
"""`model_type` in config.json -> its family."""


def family_of(config: Mapping[str, Any]) -> Family | None:
    """Return the family of a model; None if it sees no images, or is not supported."""
    return FAMILIES.get(str(config.get("model_type")))
