"""Images of stored turns: prompts with ids of the images' own, for whoever computes with them.

    turns, turn_images, images -> read_turns -> turns whose prompt_ids tell images apart, ImageTable

Datasets of a rollout have one key, as have those of an evaluation, so the key of the turns is that of their images.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from starpo.ragen.core.errors import ArtifactDamagedError
from starpo.ragen.core.visible import quoted
from starpo.ragen.store import Store
from starpo.ragen.store.attempts import of_kind, read_attempts
from starpo.schemas.manifest import Manifest

if TYPE_CHECKING:
    from starpo.ragen.agents.vision.image import Image, PlacedImage
    from starpo.ragen.agents.vision.image_table import ImageTable

_IDS = pa.list_(pa.field("item", pa.int64(), nullable=False))


def read_turns(store: Store, data: Mapping[str, str]) -> "tuple[pa.Table, ImageTable | None]":
    """Read the turns of all attempts.

    Args:
        store: The store that holds them.
        data: Role -> key; contains at least the first attempt's turns.

    Returns:
        Dataset `turns`. If prompts show images, column `prompt_ids` has ids of their own in place of placeholders, and
        the images are in the table.

    Raises:
        ArtifactMissingError: If a dataset is not stored.
        ArtifactDamagedError: If a dataset is not what was written, or turns show an image that is not among the images.
    """
    turns, places = read_attempts(store, "turns", data), read_places(store, data)
    return _with_ids(turns, places) if places else (turns, None)


def read_places(
    store: Store, data: Mapping[str, str], kind: str = "turns"
) -> "dict[tuple[str, int], list[PlacedImage]]":
    """Read the images of the prompts of all attempts: trajectory and turn -> images, in their order.

    Args:
        store: The store that holds them.
        data: Role -> key; contains at least the first attempt's turns.
        kind: Which turns show them: `turns`, or `episode_turns` of an evaluation.

    Raises:
        ArtifactMissingError: If a dataset is not stored.
        ArtifactDamagedError: If a dataset is not what was written, or turns show an image that is not among the images.
    """
    from starpo.ragen.agents.vision.image import PlacedImage

    images: dict[str, Image] = {}
    places: dict[tuple[str, int], list[PlacedImage]] = {}
    for key in of_kind(data, kind):
        if not image_kinds(store.manifest(kind, key)):
            continue
        for row in store.read_table("images", key, ["digest", "png"]).to_pylist():
            if row["digest"] not in images:
                images[row["digest"]] = read_image(key, **row)
        for row in store.read_table("turn_images", key).sort_by("position").to_pylist():
            image = images.get(row["image"])
            if image is None:
                raise ArtifactDamagedError(
                    f"trajectory {quoted(row['trajectory_id'])}, turn {row['turn']}, shows image {row['image']}, which "
                    f"is not in images {key}; copy both from where they were made, or play again"
                )
            placed = places.setdefault((row["trajectory_id"], row["turn"]), [])
            placed.append(PlacedImage(row["position"], row["num_tokens"], image))
    return places


def image_kinds(manifest: Manifest) -> tuple[str, ...]:
    """Return the kinds of the datasets of the same key with which an artifact is read; empty if it shows no images."""
    agent = manifest.settings.get("agent") or {}
    is_of_rollout = manifest.kind == "turns" and agent.get("observation", "text") != "text"
    is_marked = manifest.kind in ("turns", "episode_turns") and "images" in manifest.settings  # import, evaluation
    return ("images", "turn_images") if is_of_rollout or is_marked else ()


def read_image(key: str, digest: str, png: str) -> "Image":
    """Decode an image of the artifact of this key.

    Raises:
        ArtifactDamagedError: If it cannot be decoded, or its pixels have another digest.
    """
    from starpo.ragen.agents.vision.image import Image

    try:
        image = Image.from_png(png)
    except ValueError as error:
        raise ArtifactDamagedError(f"images {key}: image {digest} cannot be read: {error}") from error
    if image.digest != digest:
        raise ArtifactDamagedError(f"images {key}: the pixels of image {digest} have digest {image.digest}")
    return image


def _with_ids(turns: pa.Table, places: "Mapping[tuple[str, int], list[PlacedImage]]") -> "tuple[pa.Table, ImageTable]":
    from starpo.ragen.agents.vision.image_table import ImageTable

    table = ImageTable()
    names = zip(turns["trajectory_id"].to_pylist(), turns["turn"].to_pylist(), strict=True)
    prompts = turns["prompt_ids"].cast(_IDS).to_pylist()
    replaced = [table.put(prompt, places.get(name, ())) for prompt, name in zip(prompts, names, strict=True)]
    at = turns.schema.get_field_index("prompt_ids")
    return turns.set_column(at, "prompt_ids", pa.array(replaced, _IDS)), table
