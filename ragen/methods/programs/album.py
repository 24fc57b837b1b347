"""`Album`: the images that one trajectory's program shows, as `data:` URLs of PNG files. Nothing is fetched.

URL in a request -> decoded once, within the limits of `agents.vision.png` -> Image
"""

import hashlib

from starpo.ragen.agents.vision.image import Image

MAX_PIXELS = 1 << 25
"""Maximum pixels of the different images of a trajectory together: 96 MiB."""
_PREFIX = "data:image/png;base64,"


class Album:
    """Images by their URLs. Used by one thread at a time."""

    def __init__(self) -> None:
        self._images: dict[bytes, Image] = {}
        self._num_pixels_left = MAX_PIXELS

    def image(self, url: str) -> Image:
        """Return the image of a URL.

        Raises:
            ValueError: If it is no data of a PNG file that can be decoded (`decode_png`), or no longer fits.
        """
        if not url.startswith(_PREFIX):
            raise ValueError(f"it does not begin with '{_PREFIX}': nothing is fetched, and PNG alone is read")
        key = hashlib.sha256(url.encode()).digest()
        if key not in self._images and self._num_pixels_left > 0:
            image = Image.from_png(url.removeprefix(_PREFIX))
            self._num_pixels_left -= image.height * image.width
            if self._num_pixels_left >= 0:
                self._images[key] = image
        if key not in self._images:  # after the first one that does not fit, no other is decoded
            raise ValueError(f"the images of this trajectory have more than {MAX_PIXELS:,} pixels together")
        return self._images[key]
