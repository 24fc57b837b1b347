"""`Qwen25VL` and `Qwen3VL`: the families of Qwen's models that see."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from starpo.ragen.agents.vision.family import load_processor
from starpo.ragen.agents.vision.image import Image
from starpo.ragen.agents.vision.image_tokens import ImageTokens
from starpo.ragen.agents.vision.positions import Grid
from starpo.ragen.core.errors import PolicyError


@dataclass(frozen=True)
class GridTokens(ImageTokens):
    """Tokens of a policy whose processor chooses the size of each image.

    Attributes:
        grid: Returns rows and columns of an image's tokens.
        side: Side length of a token in pixels.
    """

    grid: Callable[[Image], tuple[int, int]]
    side: int

    def num_tokens(self, image: Image) -> int:
        """See `ImageTokens.num_tokens`."""
        rows, columns = self.grid(image)
        return rows * columns

    def describe(self, image: Image) -> str:
        """See `ImageTokens.describe`."""
        height, width = (number * self.side for number in self.grid(image))
        if (height, width) == (image.height, image.width):
            return super().describe(image)
        return (
            f"{super().describe(image)}, as its processor resizes it to {height} x {width} (size in "
            "preprocessor_config.json)"
        )


class Qwen25VL:
    """Qwen2.5-VL: images of any size, in patches that are merged; positions in two dimensions."""

    def processor(self, folder: Path) -> Any:
        """See `Family.processor`."""
        return load_processor("Qwen2VLImageProcessorPil", folder)

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
