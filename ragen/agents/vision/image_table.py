"""`ImageTable`: token ids for the images of a batch, in memory.

    stored      start  pad  pad  pad  pad  end       the same for every image
    in memory   start  F+0  F+1  F+2  F+3  end       F = FIRST_IMAGE_ID; the next image begins at F+4

Equal ids then mean equal inputs, for images as for text. The ids depend on the order in which a table meets its images,
and are never stored.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np

from starpo.ragen.agents.vision.image import Image, PlacedImage

FIRST_IMAGE_ID = 1 << 32
"""Larger than the id of any text token."""


def mark_images(token_ids: Sequence[int], places: Iterable[tuple[int, int]]) -> list[int]:
    """Return the tokens with ids beyond any vocabulary in place of the placeholders of images, for a `Transcriber`.

    Args:
        token_ids: The tokens.
        places: Index of the first placeholder, and number of placeholders, of each image.
    """
    ids = list(token_ids)
    for position, num_tokens in places:
        ids[position : position + num_tokens] = [FIRST_IMAGE_ID] * num_tokens
    return ids


class ImageTable:
    """Images in the order in which they were added, each once, and the ids of their tokens.

    Attributes:
        images: The images.
    """

    def __init__(self) -> None:
        self.images: list[Image] = []
        self._starts = [0]
        self._index: dict[str, int] = {}

    @property
    def num_tokens(self) -> int:
        """Number of tokens of all images."""
        return self._starts[-1]

    @property
    def num_tokens_of(self) -> list[int]:
        """Number of tokens of each image."""
        return [stop - start for start, stop in pairwise(self._starts)]

    def ids(self, image: Image, num_tokens: int) -> np.ndarray:
        """Return the ids of an image's tokens, after adding it if it is new. int64 [num_tokens]"""
        index = self._index.setdefault(image.digest, len(self.images))
        if index == len(self.images):
            self.images.append(image)
            self._starts.append(self._starts[-1] + num_tokens)
        start = self._starts[index]
        assert self._starts[index + 1] - start == num_tokens, "an image has the same number of tokens everywhere"
        return FIRST_IMAGE_ID + np.arange(start, start + num_tokens)

    def put(self, token_ids: Sequence[int], places: Iterable[PlacedImage]) -> list[int]:
        """Return the tokens with the placeholders of these images replaced by ids of their own."""
        replaced = list(token_ids)
        for place in places:
            ids = self.ids(place.image, place.num_tokens).tolist()
            replaced[place.position : place.position + place.num_tokens] = ids
        return replaced

    def local(self, token_ids: np.ndarray) -> tuple[np.ndarray, tuple[Image, ...]]:
        """Renumber the images among some tokens as if there were no others.

        Args:
            token_ids: int64 of any shape.

        Returns:
            The tokens, in which the ids of the k-th distinct image follow those of the one before it; and these images.
        """
        is_image = token_ids >= FIRST_IMAGE_ID
        places = token_ids[is_image] - FIRST_IMAGE_ID
        starts = np.array(self._starts)
        index = np.searchsorted(starts, places, side="right") - 1
        used, which = np.unique(index, return_inverse=True)
        lengths = starts[used + 1] - starts[used]
        renumbered = token_ids.copy()
        renumbered[is_image] = FIRST_IMAGE_ID + (np.cumsum(lengths) - lengths)[which] + places - starts[index]
        return renumbered, tuple(self.images[number] for number in used.tolist())
