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
    """Token ids around and inside an image.

    Attributes:
        before_ids: Ids of the tokens before its placeholders.
        image_id: Id of a placeholder.
        after_ids: Ids of the tokens after them.
    """

    before_ids: tuple[int, ...]
    image_id: int
    after_ids: tuple[int, ...]

    def num_tokens(self, image: Image) -> int:
        """Return the number of placeholders of an image.

        Raises:
            PolicyError: If the policy cannot see an image of this size.
        """
        raise NotImplementedError

    def describe(self, image: Image) -> str:
        """Say how many tokens an image takes, and whether it is resized."""
        return f"an image of {image.height} x {image.width} pixels takes {self.num_tokens(image):,}"

    def ids(self, image: Image) -> list[int]:
        """Return the tokens of an image; its placeholders begin after `before_ids`."""
        return [*self.before_ids, *[self.image_id] * self.num_tokens(image), *self.after_ids]


@dataclass(frozen=True)
class PatchTokens(ImageTokens):
    """Tokens of a policy that cuts an image into patches, a token each.

    Attributes:
        patch_size: Side length of a patch in pixels.
        max_patches: Maximum number of patches along a side.
    """

    patch_size: int
    max_patches: int

    def num_tokens(self, image: Image) -> int:
        """See `ImageTokens.num_tokens`; the sides must be multiples of the patch size."""
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

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "PatchTokens":
        """Read the `config.json` of an embedded policy that sees images."""
        start, pad, end = (config[f"{name}_token_id"] for name in ("vision_start", "image", "vision_end"))
        return cls((start,), pad, (end,), config["patch_size"], config["max_patches"])
