"""`ImageTokens`: the tokens that stand for an image in a prompt, as its policy expects them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starpo.ragen.agents.vision.image import Image
from starpo.ragen.core.errors import PolicyError

MODEL_TYPE = "starpo_tiny_vision"
"""`model_type` of the embedded visual policy."""
IMAGE_TOKENS = ("<|vision_start|>", "<|image_pad|>", "<|vision_end|>")
"""Special tokens of the embedded visual policy, named as in Qwen's: start, placeholder, end."""
MARK, REPLACEMENT = "\ufffc", "\ufffd"
"""Unicode's object replacement character stands for the image in the text of a message until that becomes tokens. In
an environment's own text it is replaced, so that no text can pass for the place of an image."""


@dataclass(frozen=True)
class ImageTokens:
    """Token ids around and inside an image, and how many of them there are.

    Attributes:
        start_id: Id of the token before an image.
        image_id: Id of the placeholder of a patch.
        end_id: Id of the token after it.
        patch_size: Side length of a patch in pixels; each patch is a token.
        max_patches: Maximum number of patches along a side.
    """

    start_id: int
    image_id: int
    end_id: int
    patch_size: int
    max_patches: int

    def num_tokens(self, image: Image) -> int:
        """Return the number of placeholders of an image.

        Raises:
            PolicyError: If the image cannot be cut into patches, or has too many along a side.
        """
        sides = image.height, image.width
        if any(side % self.patch_size for side in sides):
            raise PolicyError(
                f"an image of {image.height} x {image.width} pixels cannot be cut into patches of {self.patch_size} x "
                f"{self.patch_size}: set policy.patch_size to a divisor of both sides"
            )
        rows, columns = (side // self.patch_size for side in sides)
        if max(rows, columns) > self.max_patches:
            raise PolicyError(
                f"an image of {image.height} x {image.width} pixels has {rows} x {columns} patches, and the policy "
                f"knows at most {self.max_patches} a side: raise policy.patch_size, or draw a smaller image"
            )
        return rows * columns

    def ids(self, image: Image) -> list[int]:
        """Return the tokens of an image; its placeholders begin at index 1."""
        return [self.start_id, *[self.image_id] * self.num_tokens(image), self.end_id]


def image_tokens_of(config: Mapping[str, Any]) -> ImageTokens | None:
    """Read a model's `config.json`; None if the model sees no images, or is of a family that is not supported."""
    if config.get("model_type") != MODEL_TYPE:
        return None
    names = "vision_start_token_id", "image_token_id", "vision_end_token_id", "patch_size", "max_patches"
    return ImageTokens(*(config[name] for name in names))
