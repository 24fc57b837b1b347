"""PNG files of 8-bit RGB: the form in which images are stored.

The writer is deterministic for one release of zlib: no filters, no metadata, one compression level. The reader accepts
this form alone, and never decompresses more than the declared size.
"""

import struct
import zlib

import numpy as np

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_LEVEL = 9
MAX_PIXELS = 1 << 24
"""Maximum pixels of an image: 4096 x 4096, 48 MiB."""


def encode_png(pixels: np.ndarray) -> bytes:
    """Encode uint8 [height, width, 3] as a PNG file."""
    height, width, _ = pixels.shape
    rows = np.zeros((height, 1 + 3 * width), np.uint8)  # every row begins with the number of its filter: 0, none
    rows[:, 1:] = pixels.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = (b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), _LEVEL)), (b"IEND", b"")
    return _SIGNATURE + b"".join(_chunk(kind, data) for kind, data in parts)


def decode_png(data: bytes) -> np.ndarray:
    """Decode a file that `encode_png` wrote.

    Returns:
        uint8 [height, width, 3]

    Raises:
        ValueError: If it is no PNG file, truncated or damaged, of another form than 8-bit RGB without filters, or has
            other or more data than its header says.
    """
    chunks = _chunks(data)
    if [kind for kind, _ in chunks] != [b"IHDR", b"IDAT", b"IEND"] or len(chunks[0][1]) != 13:
        raise ValueError(f"chunks {b', '.join(kind for kind, _ in chunks)!r}; expected IHDR, IDAT and IEND")
    width, height, *form = struct.unpack(">IIBBBBB", chunks[0][1])
    if form != [8, 2, 0, 0, 0]:
        raise ValueError(f"form {form} (depth, colour type, ...); expected 8-bit RGB, not interlaced")
    if not 0 < width * height <= MAX_PIXELS:
        raise ValueError(f"{width} x {height} pixels; expected 1 to {MAX_PIXELS:,}")
    num_bytes = height * (1 + 3 * width)
    inflate = zlib.decompressobj()
    try:
        raw = inflate.decompress(chunks[1][1], num_bytes + 1)
    except zlib.error as error:
        raise ValueError(f"its data cannot be decompressed: {error}") from error
    if len(raw) != num_bytes or not inflate.eof:
        found = "more" if len(raw) > num_bytes else f"{len(raw):,}"
        raise ValueError(f"its header needs {num_bytes:,} bytes of data, found {found}")
    rows = np.frombuffer(raw, np.uint8).reshape(height, -1)
    if rows[:, 0].any():
        raise ValueError("rows with filters, which this project does not write; store the image again")
    return rows[:, 1:].reshape(height, width, 3)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _chunks(data: bytes) -> list[tuple[bytes, bytes]]:
    if not data.startswith(_SIGNATURE):
        raise ValueError("it does not begin as a PNG file does")
    found, at = [], len(_SIGNATURE)
    while at < len(data):
        if len(data) < at + 12:
            raise ValueError(f"it ends inside a chunk, after {len(data):,} bytes")
        (length,), kind = struct.unpack_from(">I", data, at), data[at + 4 : at + 8]
        end = at + 8 + length
        if len(data) < end + 4:
            raise ValueError(f"it ends inside a chunk, after {len(data):,} bytes")
        if struct.unpack_from(">I", data, end) != (zlib.crc32(data[at + 4 : end]),):
            raise ValueError(f"chunk {kind!r} does not have the checksum that the file gives")
        found.append((kind, data[at + 8 : end]))
        at = end + 4
    return found
