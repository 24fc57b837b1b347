"""PNG files: what was written is read, and what is damaged or of another form is refused."""

import base64
import io
import struct
import zlib

import numpy as np
import PIL.Image
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from starpo.ragen.agents.vision.image import Image
from starpo.ragen.agents.vision.png import decode_png, encode_png

PIXELS = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
MANY_COLOURS = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)


@pytest.mark.parametrize("is_compressed", [True, False])
@given(st.tuples(st.integers(1, 9), st.integers(1, 9)).flatmap(lambda s: arrays(np.uint8, (*s, 3))))
def test_png_round_trip(is_compressed, pixels):
    assert (decode_png(encode_png(pixels, is_compressed=is_compressed)) == pixels).all()


@pytest.mark.parametrize("is_compressed", [True, False])
def test_more_colours_than_a_palette_has(is_compressed):
    assert (decode_png(encode_png(MANY_COLOURS, is_compressed=is_compressed)) == MANY_COLOURS).all()


def test_equal_bytes_other_sides_differ():
    assert Image(PIXELS.copy()) != Image(PIXELS.reshape(3, 2, 3).copy())
    assert Image(PIXELS.copy()) == Image.from_png(Image(PIXELS.copy()).to_png())


@pytest.mark.parametrize("pixels", [PIXELS, MANY_COLOURS], ids=["palette", "rgb"])
def test_a_truncated_file_is_refused(pixels):
    for file in (encode_png(pixels), encode_png(pixels, is_compressed=False)):
        for length in range(file.index(b"IEND") - 16):  # before the end of the pixels
            with pytest.raises(ValueError, match=r"truncated|header is damaged|begin as a PNG"):
                decode_png(file[:length])


@pytest.mark.parametrize("pixels", [PIXELS, MANY_COLOURS], ids=["palette", "rgb"])
def test_changed_byte_gives_known_error(pixels):
    file = encode_png(pixels)
    for at in range(len(file)):
        try:
            decode_png(file[:at] + bytes([file[at] ^ 1]) + file[at + 1 :])
        except ValueError:
            continue


def saved(mode, size=(2, 2), form="PNG", **options):
    file = io.BytesIO()
    PIL.Image.new(mode, size).save(file, form, **options)
    return file.getvalue()


def animated(num_frames=2):
    frames = [PIL.Image.new("RGB", (2, 2), (number, 0, 0)) for number in range(num_frames)]
    file = io.BytesIO()
    frames[0].save(file, "PNG", save_all=True, append_images=frames[1:])
    return file.getvalue()


def of_16_bits():
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 16, 2, 0, 0, 0)), (b"IDAT", zlib.compress(bytes(7)))]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in (*chunks, (b"IEND", b""))
    )


@pytest.mark.parametrize("pixels", [PIXELS, MANY_COLOURS], ids=["palette", "rgb"])
def test_image_orientation_is_applied(pixels):
    exif = PIL.Image.Exif()
    exif[0x0112] = 6  # the first row of the file is the right side of the image
    image, file = PIL.Image.open(io.BytesIO(encode_png(pixels))), io.BytesIO()
    image.save(file, "PNG", exif=exif)
    assert (decode_png(file.getvalue()) == np.rot90(pixels, -1)).all()


def claiming(width, height):
    """A file of four pixels, the header of which says another size."""
    file = saved("RGB")
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return file[:12] + header + struct.pack(">I", zlib.crc32(header)) + file[33:]


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (saved("RGBA"), "mode RGBA; expected RGB"),
        (saved("P", transparency=0), "mode P; expected RGB or a palette"),
        (saved("L"), "mode L; expected RGB"),
        (of_16_bits(), "16 bits a channel; expected 8"),
        (animated(), "it is animated"),
        (saved("RGB", form="JPEG"), "does not begin as a PNG file does"),
        (claiming(2**20, 2**20), "more than 16,777,216 pixels"),
        (claiming(10_000, 10_000), "pixels"),
        (claiming(4097, 4096), "4097 x 4096 pixels; expected 1 to 16,777,216"),
        (claiming(3, 3), "truncated"),
    ],
    ids=["alpha", "transparent", "grey", "16 bits", "animated", "jpeg", "huge", "large", "a little too large", "short"],
)
def test_other_files_are_refused(file, message):
    with pytest.raises(ValueError, match=message):
        decode_png(file)


def test_invalid_base64_is_refused():
    with pytest.raises(ValueError, match="base64"):
        Image.from_png("*" + base64.b64encode(encode_png(PIXELS)).decode())
