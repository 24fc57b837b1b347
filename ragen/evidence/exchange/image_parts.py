"""Images of messages from elsewhere: PNG files in data URLs, or beside the document that names them.

part of a message -> ImageParts -> Image, and its mark in the text of the message

The files are untrusted: they are decoded within the limits of `png.decode_png`, each once, and those of a trace have at
most `MAX_PIXELS` pixels together.
"""

import re
from base64 import b64decode
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from starpo.ragen.agents.vision.image import Image, PlacedImage
from starpo.ragen.agents.vision.image_tokens import MARK
from starpo.ragen.agents.vision.png import decode_png
from starpo.ragen.evidence.exchange.lines import MAX_PIECE_BYTES
from starpo.ragen.evidence.exchange.trace import TraceFault

MAX_PIXELS = 1 << 26
"""Maximum pixels of all images of a trace: 192 MiB in memory."""
DATA_URL = "data:image/png;base64,"
_PATH = re.compile(r"images/([0-9a-f]{32})\.png")


def image_path(digest: str) -> str:
    """Return the path of an image's file, relative to the folder of the documents that show it."""
    return f"images/{digest}.png"


class ImageParts:
    """Images among the messages of a trace."""

    def __init__(self, folder: Path | None = None) -> None:
        """Start without images; `folder` is that of the document, None if images are data URLs alone."""
        self._folder = folder
        self._decoded: dict[str, Image] = {}
        self._waiting: list[Image] = []
        self._num_pixels = 0

    def mark(self, part: Mapping[str, Any]) -> str:
        """Note the image of a message's part; return the mark that stands for it in the text.

        Raises:
            TraceFault: If the part is no image, or its image cannot be decoded.
        """
        kind = part.get("type")
        if kind == "image_url":
            self._waiting.append(self._of_url(part.get("image_url")))
        elif kind == "image" and self._folder is not None:
            source = part.get("source")
            self._waiting.append(self.of_file(source.get("path") if isinstance(source, Mapping) else None))
        else:
            raise TraceFault(f"a message has a part of type {str(kind)[:40]!r}; texts and PNG images can be imported")
        return MARK

    def take(self) -> tuple[PlacedImage, ...]:
        """Return the images noted since the last call. Which tokens stand for them is not known."""
        taken = tuple(PlacedImage(number, 0, image) for number, image in enumerate(self._waiting))
        self._waiting = []
        return taken

    def of_file(self, path: Any) -> Image:
        """Decode a file beside the document, named as our own exports name it (`image_path`).

        Raises:
            TraceFault: If the name is another one, or the file is missing or not that image.
        """
        match = _PATH.fullmatch(path) if isinstance(path, str) else None
        if self._folder is None or match is None:
            raise TraceFault(
                f"an image has the path {str(path)[:60]!r}, expected images/DIGEST.png beside the document"
            )
        file = self._folder / path
        image = self._decode(path, lambda: _read(file))
        if image.digest != match[1]:
            raise TraceFault(f"{path!r} is another image, of digest {image.digest!r}")
        return image

    def _of_url(self, value: Any) -> Image:
        url = value.get("url") if isinstance(value, Mapping) else value
        if not isinstance(url, str) or not url.startswith(DATA_URL):
            raise TraceFault(f"an image has the URL {str(url)[:40]!r}, expected {DATA_URL}...")
        return self._decode(url, lambda: b64decode(url.removeprefix(DATA_URL), validate=True))

    def _decode(self, name: str, read: Callable[[], bytes]) -> Image:
        if name not in self._decoded:
            try:
                image = Image(decode_png(read()))
            except (ValueError, OSError) as error:
                raise TraceFault(f"the image {name[:60]!r} cannot be read: {error}") from error
            self._num_pixels += image.height * image.width
            if self._num_pixels > MAX_PIXELS:
                raise TraceFault(f"has images of more than {MAX_PIXELS:,} pixels together")
            self._decoded[name] = image
        return self._decoded[name]


def _read(file: Path) -> bytes:
    if file.is_symlink() or file.parent.is_symlink() or not file.is_file():
        raise ValueError("there is no such file beside the document")
    if file.stat().st_size > MAX_PIECE_BYTES:
        raise ValueError(f"it is larger than {MAX_PIECE_BYTES // 2**20} MiB")
    return file.read_bytes()
