"""The picture of a question: bytes of an image file in its row -> pixels of a square.

value of a column -> picture_of -> bytes -> pixels_of -> uint8 [size, size, 3]
"""

import base64
import binascii
from io import BytesIO
from typing import Any

import numpy as np

from starpo.ragen.core.errors import EnvironmentFault

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
_MAX_BYTES = 16 * 2**20
_MAX_PIXELS = 50_000_000


def picture_of(value: Any) -> bytes:
    """Return the image file that a row holds, undecoded.

    Args:
        value: Bytes; base64, as `data:image/png;base64,...` or alone; `{"bytes": ...}`, as data sets of Hugging Face
            store images; or a list of one of these. Not a path: what it points to is in no digest.

    Raises:
        ValueError: If it is none of these.
    """
    if isinstance(value, list):
        if len(value) != 1:
            raise ValueError(f"holds {len(value)} pictures; one is shown")
        value = value[0]
    if isinstance(value, dict):
        value = value.get("bytes")
    if isinstance(value, str):
        head, comma, tail = value.partition(",")
        try:
            value = base64.b64decode(tail if comma and head.startswith("data:") else value, validate=True)
        except (binascii.Error, ValueError) as error:
            raise ValueError("is no picture in base64; a path is not followed, put the file itself there") from error
    if not isinstance(value, bytes) or not value:
        raise ValueError("holds no picture: expected the bytes of a file, or base64")
    if len(value) > _MAX_BYTES:
        raise ValueError(f"holds a picture of {len(value):,} bytes, more than {_MAX_BYTES:,}")
    return value


def pixels_of(picture: bytes, size: int) -> np.ndarray:
    """Decode a picture, fitted into a white square: uint8 [size, size, 3].

    Raises:
        EnvironmentFault: If it cannot be decoded, or has too many pixels.
    """
    from PIL import Image, ImageOps

    try:
        with Image.open(BytesIO(picture), formats=FORMATS) as image:
            if image.width * image.height > _MAX_PIXELS:
                raise EnvironmentFault(f"questions: a picture has {image.width}x{image.height} pixels, too many")
            colours = image.convert("RGBA")
    except EnvironmentFault:
        raise
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise EnvironmentFault(
            f"questions: a picture cannot be read ({error}); expected {', '.join(FORMATS)}"
        ) from error
    fitted = ImageOps.contain(colours, (size, size))
    square = Image.new("RGBA", (size, size), "white")
    square.alpha_composite(fitted, ((size - fitted.width) // 2, (size - fitted.height) // 2))
    return np.asarray(square.convert("RGB"), dtype=np.uint8).copy()
