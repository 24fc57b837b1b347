"""Families of models that see: how each prepares an image, and where its placeholders are.

    folder -> family_of -> Family: image tokens for prompts; features of images for `embeddings`

A new family is a class and a line of `FAMILIES`.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol, cast

import torch
import transformers
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from starpo.ragen.agents.policy.folder import read_config
from starpo.ragen.agents.vision.image import Image
from starpo.ragen.agents.vision.image_tokens import MODEL_TYPE, FixedTokens, GridTokens, ImageTokens, PatchTokens
from starpo.ragen.agents.vision.positions import Grid
from starpo.ragen.core.errors import PolicyError, named_line


class Family(Protocol):
    """A family of models; without state."""

    def processor(self, folder: Path) -> Any:
        """Load what prepares images from a policy's folder; None if nothing is needed.

        Raises:
            PolicyError: If it is missing or damaged.
        """

    def image_tokens(
        self, config: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase, processor: Any
    ) -> ImageTokens:
        """Return the tokens of an image, for a model's `config.json`.

        Raises:
            PolicyError: If configuration and tokenizer do not say them.
        """

    def grid(self, processor: Any, image: Image) -> Grid | None:
        """Return rows and columns of an image's tokens; None if their positions are those of a plain sequence."""

    def num_deep(self, config: Any) -> int:
        """Return the number of layers that add features of their own for every placeholder."""

    def pixels(self, processor: Any, config: Any, image: Image) -> dict[str, Tensor]:
        """Return what vLLM reads of an image, as it calls its parts.

        Args:
            processor: What prepares images.
            config: The model's configuration.
            image: The image.

        Raises:
            PolicyError: If vLLM does not know this family.
        """

    def features(self, backbone: Any, images: Sequence[Image]) -> Tensor:
        """Compute the features of images: the embedding of each placeholder, in the order of the images, followed by
        its features for the layers that add some, [F, (1 + num_deep) * H]."""


class TinyVision:
    """The embedded visual policy."""

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
        return _processor("SmolVLMImageProcessorPil", folder)

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


class Qwen25VL:
    """Qwen2.5-VL: images of any size, in patches that are merged; positions in two dimensions."""

    def processor(self, folder: Path) -> Any:
        """See `Family.processor`."""
        return _processor("Qwen2VLImageProcessorPil", folder)

    def image_tokens(
        self, config: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase, processor: Any
    ) -> ImageTokens:
        """See `Family.image_tokens`."""
        start, pad, end = (config[f"{name}_token_id"] for name in ("vision_start", "image", "vision_end"))
        side = processor.patch_size * processor.merge_size if processor is not None else 0
        return GridTokens((start,), pad, (end,), partial(self.grid, processor), side)

    def grid(self, processor: Any, image: Image) -> Grid:
        """See `Family.grid`."""
        from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

        side = processor.patch_size * processor.merge_size
        least, most = processor.size["shortest_edge"], processor.size["longest_edge"]
        try:
            height, width = smart_resize(image.height, image.width, side, least, most)
        except ValueError as error:
            raise PolicyError(
                f"an image of {image.height} x {image.width} pixels cannot be resized: {error}"
            ) from error
        return height // side, width // side

    def num_deep(self, config: Any) -> int:
        """Return 0."""
        return 0

    def features(self, backbone: Any, images: Sequence[Image]) -> Tensor:
        """See `Family.features`."""
        output = backbone.get_image_features(*self._prepared(backbone, images), return_dict=True)
        return torch.cat(list(output.pooler_output))

    def pixels(self, processor: Any, config: Any, image: Image) -> dict[str, Tensor]:
        """See `Family.pixels`."""
        return dict(processor([image.pixels], return_tensors="pt"))

    def _prepared(self, backbone: Any, images: Sequence[Image]) -> tuple[Tensor, Tensor]:
        prepared = backbone.image_processor([image.pixels for image in images], return_tensors="pt")
        return prepared["pixel_values"].to(backbone.device), prepared["image_grid_thw"].to(backbone.device)


class Qwen3VL(Qwen25VL):
    """Qwen3-VL: as Qwen2.5-VL, and its first layers add features of the encoder's inner layers."""

    def num_deep(self, config: Any) -> int:
        """See `Family.num_deep`."""
        return len(config.vision_config.deepstack_visual_indexes)

    def features(self, backbone: Any, images: Sequence[Image]) -> Tensor:
        """See `Family.features`."""
        output = backbone.get_image_features(*self._prepared(backbone, images), return_dict=True)
        parts = [output.pooler_output, *output.deepstack_features]
        return torch.cat([torch.cat(list(part)) for part in parts], dim=-1)


FAMILIES: dict[str, Family] = {
    MODEL_TYPE: TinyVision(),
    "smolvlm": SmolVLM(),
    "qwen2_5_vl": Qwen25VL(),
    "qwen3_vl": Qwen3VL(),
}
"""`model_type` in config.json -> its family."""


def family_of(config: Mapping[str, Any]) -> Family | None:
    """Return the family of a model; None if it sees no images, or is not supported."""
    return FAMILIES.get(str(config.get("model_type")))


def image_tokens_of(folder: str | Path, tokenizer: PreTrainedTokenizerBase) -> ImageTokens | None:
    """Return the tokens around an image, from a policy's folder without what prepares images; None if it sees none.

    Raises:
        PolicyError: If its configuration is missing or damaged.
    """
    config = read_config(Path(folder))
    family = family_of(config)
    return None if family is None else family.image_tokens(config, tokenizer, None)


def _processor(name: str, folder: Path) -> Any:
    """Load an image processor of transformers, in its form without torchvision.

    Raises:
        PolicyError: If the folder has none.
    """
    try:
        return getattr(transformers, name).from_pretrained(folder, local_files_only=True)
    except Exception as error:  # transformers raises errors of many types
        raise PolicyError(
            f"the image processor in '{folder}' cannot be loaded: {named_line(error)}; it needs the model's own "
            "preprocessor_config.json"
        ) from error
