"""`Image`: what an agent sees of a state, identified by its pixels."""

import base64
import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from starpo.ragen.core.errors import EnvironmentFault
from starpo.ragen.envs.base import Environment


@dataclass(frozen=True)
class Image:
    """An RGB image. Images of equal pixels are equal.

    Attributes:
        pixels: uint8 [height, width, 3], read-only.
        digest: 32 hexadecimal digits, of size and pixels.
    """

    pixels: np.ndarray = field(compare=False, repr=False)
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        height, width, _ = self.pixels.shape
        raw = f"{height}x{width}/".encode() + np.ascontiguousarray(self.pixels).tobytes()
        object.__setattr__(self, "digest", hashlib.blake2b(raw, digest_size=16).hexdigest())
        self.pixels.flags.writeable = False

    @property
    def height(self) -> int:
        """Height in pixels."""
        return self.pixels.shape[0]

    @property
    def width(self) -> int:
        """Width in pixels."""
        return self.pixels.shape[1]

    def to_png(self, *, is_compressed: bool = True) -> str:
        """Encode the image as a PNG file in base64; in the store it is not compressed (`encode_png`)."""
        from starpo.ragen.agents.vision.png import encode_png

        return base64.b64encode(encode_png(self.pixels, is_compressed=is_compressed)).decode()

    @classmethod
    def from_png(cls, text: str) -> "Image":
        """Decode a PNG file in base64.

        Raises:
            ValueError: If it is none (`decode_png`).
        """
        from starpo.ragen.agents.vision.png import decode_png

        return cls(decode_png(base64.b64decode(text, validate=True)))


@dataclass(frozen=True)
class PlacedImage:
    """An image in a prompt.

    Attributes:
        position: Index of its first placeholder among the prompt's tokens.
        num_tokens: Number of its placeholders.
        image: The image.
    """

    position: int
    num_tokens: int
    image: Image


def image_of(environment: Environment[Any]) -> Image:
    """Draw an environment's current state.

    Raises:
        EnvironmentFault: If it draws none, or something other than uint8 [height, width, 3] of a sane size.
    """
    from starpo.ragen.agents.vision.png import MAX_PIXELS

    pixels = environment.render_rgb()
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3:
        description = (
            f"{pixels.dtype} {list(pixels.shape)}" if isinstance(pixels, np.ndarray) else type(pixels).__name__
        )
        raise EnvironmentFault(
            f"render_rgb of '{environment.settings.type}' gave {description}; expected uint8 [h, w, 3]"
        )
    if not 0 < pixels.size <= 3 * MAX_PIXELS:
        raise EnvironmentFault(
            f"render_rgb of '{environment.settings.type}' gave {pixels.shape[0]} x {pixels.shape[1]} pixels; expected "
            f"1 to {MAX_PIXELS:,}: draw it smaller"
        )
    return Image(pixels.copy())
