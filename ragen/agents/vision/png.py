"""PNG files of 8-bit RGB or a palette of it: the form in which images are stored and passed on."""

import io

import numpy as np
import PIL.Image
import PIL.ImageOps

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_MAX_COLOURS = 256
MAX_PIXELS = 1 << 24
"""Maximum pixels of an image: 4096 x 4096, 48 MiB."""


def encode_png(pixels: np.ndarray, *, is_compressed: bool = True) -> bytes:
    """Encode an image, with a palette if it has at most 256 colours.

    Args:
        pixels: uint8 [height, width, 3]
        is_compressed: Compress the file; otherwise it has the same bytes with every release of zlib, and what holds
            many images compresses them together, as Parquet files do.
    """
    height, width, _ = pixels.shape
    colours, index = np.unique(pixels.reshape(-1, 3) @ np.array([1 << 16, 1 << 8, 1], np.int32), return_inverse=True)
    if len(colours) <= _MAX_COLOURS:
        image = PIL.Image.frombytes("P", (width, height), index.astype(np.uint8).tobytes())
        image.putpalette(
            np.stack([colours >> 16, colours >> 8 & 255, colours & 255], axis=1).astype(np.uint8).tobytes()
        )
    else:
        image = PIL.Image.fromarray(pixels)
    file = io.BytesIO()
    image.save(file, "PNG", compress_level=9 if is_compressed else 0)
    return file.getvalue()


def decode_png(data: bytes) -> np.ndarray:
    """Decode a PNG file of 8-bit RGB or a palette, turned as its orientation (EXIF) says it is to be shown.

    Returns:
        uint8 [height, width, 3]

    Raises:
        ValueError: If it is another type of file, larger than `MAX_PIXELS`, of another mode or 16 bits, animated,
            damaged or truncated. An image is not decompressed before its size and mode are known to be right.
    """
    if not data.startswith(_SIGNATURE):
        raise ValueError("it does not begin as a PNG file does")
    try:
        image = PIL.Image.open(io.BytesIO(data), formats=("PNG",))
    except (PIL.Image.DecompressionBombError, PIL.Image.DecompressionBombWarning) as error:
        raise ValueError(f"more than {MAX_PIXELS:,} pixels: {error}") from error
    except Exception as error:  # Pillow raises errors of many types
        raise ValueError(f"its header is damaged, after {len(data):,} bytes at the latest") from error
    with image:
        if not 0 < image.width * image.height <= MAX_PIXELS:
            raise ValueError(f"{image.width} x {image.height} pixels; expected 1 to {MAX_PIXELS:,}")
        if image.mode not in ("RGB", "P") or "transparency" in image.info:
            raise ValueError(f"mode {image.mode}; expected RGB or a palette (P), without transparency")
        if image.tile and "16" in str(image.tile[0][3]):  # Pillow would cut off the lower 8, and say RGB
            raise ValueError("16 bits a channel; expected 8: convert it, since half of them would be lost")
        if image.get_format_mimetype() != "image/png":
            raise ValueError("it is animated (APNG); expected a single image: show its frames as an image each")
        try:
            return np.array(PIL.ImageOps.exif_transpose(image).convert("RGB"))
        except Exception as error:
            raise ValueError(f"it is damaged or truncated, after {len(data):,} bytes at the latest: {error}") from error
