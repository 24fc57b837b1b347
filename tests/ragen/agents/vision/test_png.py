"""Stored images: what was written is read, and nothing else."""

import base64
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from starpo.ragen.agents.vision.image import Image
from starpo.ragen.agents.vision.png import _SIGNATURE, _chunk, decode_png, encode_png

PIXELS = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
FILE = encode_png(PIXELS)


@given(st.tuples(st.integers(1, 9), st.integers(1, 9)).flatmap(lambda s: arrays(np.uint8, (*s, 3))))
def test_what_was_written_is_read(pixels):
    assert (decode_png(encode_png(pixels)) == pixels).all()


def test_images_of_equal_bytes_and_other_sides_differ():
    assert Image(PIXELS.copy()) != Image(PIXELS.reshape(3, 2, 3).copy())
    assert Image(PIXELS.copy()) == Image.from_png(base64.b64encode(FILE).decode())


@pytest.mark.parametrize("length", range(len(FILE)))
def test_a_truncated_file_is_refused(length):
    with pytest.raises(ValueError, match=r"ends inside a chunk|begin as a PNG|chunks"):
        decode_png(FILE[:length])


@pytest.mark.parametrize("at", range(8, len(FILE)))
def test_a_changed_byte_is_noticed(at):
    with pytest.raises(ValueError, match=r"checksum|ends inside|chunks"):
        decode_png(FILE[:at] + bytes([FILE[at] ^ 1]) + FILE[at + 1 :])


def png(width, height, form, data):
    header = _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, *form))
    return _SIGNATURE + header + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")


RGB = (8, 2, 0, 0, 0)


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (png(1, 1, (8, 6, 0, 0, 0), zlib.compress(bytes(5))), "expected 8-bit RGB"),
        (png(2**20, 2**20, RGB, zlib.compress(bytes(9))), "expected 1 to"),
        (png(0, 1, RGB, zlib.compress(b"")), "expected 1 to"),
        (png(1, 1, RGB, zlib.compress(bytes(50_000_000))), "found more"),
        (png(1, 1, RGB, zlib.compress(bytes(3))), "needs 4 bytes of data, found 3"),
        (png(1, 1, RGB, zlib.compress(bytes(4))[:-4]), "needs 4 bytes"),
        (png(1, 1, RGB, b"no deflate"), "cannot be decompressed"),
        (png(1, 1, RGB, zlib.compress(b"\1\0\0\0")), "filters"),
    ],
    ids=["alpha", "huge", "empty", "bomb", "short", "unended", "garbage", "filtered"],
)
def test_other_files_are_refused(file, message):
    with pytest.raises(ValueError, match=message):
        decode_png(file)
