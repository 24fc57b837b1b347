"""Images that prompts showed, in the format of the page: their names in the turns, and each picture once.

turn_images -> shown_images       images of the shown rollouts -> read_images -> digest -> PNG, to a size limit
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from starpo.ragen.core.errors import ArtifactDamagedError
from starpo.ragen.evidence.reading import Place, Reader
from starpo.ragen.runs.stored_images import read_image

Row = dict[str, Any]


def shown_images(reader: Reader, places: Sequence[Place]) -> dict[tuple[str, int], list[Row]]:
    """Return trajectory and turn -> rows of `turn_images` of its prompt, in their order."""
    shown: dict[tuple[str, int], list[Row]] = {}
    for table in (reader.table(place) for place in places):
        for row in table.sort_by("position").to_pylist() if table is not None else ():
            shown.setdefault((row["trajectory_id"], row["turn"]), []).append(row)
    return shown


def read_images(reader: Reader, wanted: Mapping[Place, Sequence[str]], max_bytes: int) -> dict[str, str]:
    """Read images as PNG files in base64.

    Args:
        reader: Reader of the store; images that are damaged are noted and left out.
        wanted: Artifact of kind `images` -> digests of images in it, most important first.
        max_bytes: Maximum total size in base64; reading ends at the first image that does not fit.
    """
    images: dict[str, str] = {}
    for place, digests in wanted.items():
        table = reader.table(place, ["digest", "png"])
        if table is None:
            continue
        chosen = table.filter(pc.is_in(table["digest"], pa.array(digests, pa.string())))
        stored = dict(zip(chosen["digest"].to_pylist(), chosen["png"].to_pylist(), strict=True))
        for digest in digests:
            if digest in images or digest not in stored:
                continue
            try:
                png = read_image(place.key, digest, stored[digest]).to_png()
            except ArtifactDamagedError as error:
                reader.note(place, error)
                continue
            max_bytes -= len(png)
            if max_bytes < 0:
                return images
            images[digest] = png
    return images
