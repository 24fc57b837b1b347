"""Images of the prompts, passed from the player to the stage: a list of images for each turn.

play -> column of its `turns` -> `play_shards` -> take_images -> datasets `turns`, `turn_images` and `images`

They are attached to the rows because these may come from another process; datasets are stored without the column. In a
table of `play`, the pixels of an image travel with the first turn that shows it.
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from starpo.ragen.agents.vision.image import PlacedImage
from starpo.schemas.datasets import IMAGES, TURN_IMAGES, TURNS

_NAME = "images"
_OF_THE_TURN = ("trajectory_id", "turn")
_SENT = [field for field in (*TURN_IMAGES.schema, *IMAGES.schema) if field.name not in (*_OF_THE_TURN, "digest")]
_TYPE = pa.list_(pa.struct(_SENT))
WITH_IMAGES = TURNS.schema.append(pa.field(_NAME, _TYPE))
"""Columns of `turns`, followed by each turn's images."""


def with_images(turns: pa.Table, images: Sequence[Sequence[PlacedImage]]) -> pa.Table:
    """Attach the images of each turn's prompt."""
    sent: set[str] = set()
    rows: list[list[dict[str, Any]]] = [[] for _ in images]
    for row, placed in zip(rows, images, strict=True):
        for one in placed:
            image = one.image
            png = "" if image.digest in sent else image.to_png(is_compressed=False)
            sent.add(image.digest)
            size = {"height": image.height, "width": image.width, "png": png}
            row.append({"position": one.position, "num_tokens": one.num_tokens, "image": image.digest, **size})
    return turns.append_column(WITH_IMAGES.field(_NAME), pa.array(rows, _TYPE))


def take_images(turns: pa.Table) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Split into datasets `turns`, `turn_images` in the order of the turns, and `images` in the order of their first
    appearance."""
    places: list[dict[str, Any]] = []
    images: dict[str, dict[str, Any]] = {}
    for row in turns.select([*_OF_THE_TURN, _NAME]).to_pylist():
        turn = {name: row[name] for name in _OF_THE_TURN}
        for sent in row[_NAME]:
            places.append(turn | {name: sent[name] for name in ("position", "num_tokens", "image")})
            known = images.setdefault(sent["image"], {"digest": sent["image"], **sent})
            known["png"] = known["png"] or sent["png"]
    plain = turns.drop_columns([_NAME]).cast(TURNS.schema)
    return plain, _table(places, TURN_IMAGES.schema), _table(list(images.values()), IMAGES.schema)


def _table(rows: Sequence[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    columns = [pa.array([row[field.name] for row in rows], field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)
