"""Rules of the datasets `images` and `turn_images` beyond their columns.

That pixels have the digest under which they are stored is checked where they are read (`ragen.runs.stored_images`).
"""

from base64 import b64encode

import polars as pl
from polars import col

from starpo.schemas.rule import Rule, same

_SIGNATURE = b64encode(b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHD").decode()


def _header_number(at: int) -> pl.Expr:
    """Return the 32-bit number at this byte of a PNG file, one of the first 24."""
    header = col("png").str.slice(0, 32).str.decode("base64", strict=False)
    return header.bin.slice(at, 4).bin.encode("hex").str.to_integer(base=16, strict=False).fill_null(-1)


IMAGE_ROWS = (
    Rule(("png",), "begins as a PNG file does", col("png").str.starts_with(_SIGNATURE)),
    Rule(("width", "png"), "is that of the PNG file", col("width") == _header_number(16)),
    Rule(("height", "png"), "is that of the PNG file", col("height") == _header_number(20)),
)

_ends = col("position").cast(pl.Int64) + col("num_tokens")

TURN_IMAGE_TABLE = (
    same("num_tokens", "image"),
    Rule(
        ("position", "num_tokens", "trajectory_id", "turn"),
        "lies after the placeholders of the turn's image before",
        (col("position").sort().slice(1) >= _ends.sort_by("position").slice(0, pl.len() - 1)).all(),
        ("trajectory_id", "turn"),
    ),
)
