"""`embed`: input embeddings of a context with images. The seam between contexts and models that see.

Legend: F placeholders of all images, H hidden size.
"""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from starpo.ragen.agents.vision.families import FAMILIES
from starpo.ragen.agents.vision.image import Image
from starpo.ragen.agents.vision.image_table import FIRST_IMAGE_ID
from starpo.ragen.agents.vision.positions import Grid, grid_positions


def image_features(backbone: nn.Module, images: Sequence[Image]) -> Tensor:
    """Compute the features of images, [F, H]."""
    module: Any = backbone
    return FAMILIES[module.config.model_type].features(module, images)


def with_features(token_ids: Tensor, text_VH: Tensor, features_FH: Tensor) -> Tensor:
    """Look up the embeddings of text tokens in one table and those of images in another, [..., H].

    Args:
        token_ids: int64 of any shape; ids of images are `FIRST_IMAGE_ID` plus a row of the features.
        text_VH: Embeddings of the vocabulary, [V, H].
        features_FH: Features of the images.
    """
    is_image = token_ids >= FIRST_IMAGE_ID
    embedded = nn.functional.embedding(token_ids.masked_fill(is_image, 0), text_VH)
    return embedded.index_put((is_image,), features_FH[token_ids[is_image] - FIRST_IMAGE_ID].to(embedded.dtype))


def grids_of(backbone: nn.Module, images: Sequence[Image]) -> list[Grid] | None:
    """Return rows and columns of each image's tokens; None if positions are those of a plain sequence."""
    module: Any = backbone
    family, processor = FAMILIES[module.config.model_type], getattr(module, "image_processor", None)
    grids = [grid for image in images if (grid := family.grid(processor, image)) is not None]
    return grids or None


def model_inputs(
    backbone: nn.Module,
    token_ids_ST: Tensor,
    images: Sequence[Image],
    position_ST: Tensor | None = None,
    end_ST: Tensor | None = None,
) -> dict[str, Tensor]:
    """Return the keyword arguments with which the backbone reads these tokens, without the attention mask.

    Args:
        backbone: Model without its output layer.
        token_ids_ST: int64; ids of images are numbered over `images` (`ImageTable.local`).
        images: The distinct images among them.
        position_ST: As in `MicroBatch`.
        end_ST: As in `MicroBatch`.
    """
    positions = {} if position_ST is None else {"position_ids": position_ST}
    if not images:
        return {"input_ids": token_ids_ST, **positions}
    module: Any = backbone
    grids = grids_of(backbone, images)
    if grids is not None:
        positions = {"position_ids": grid_positions(token_ids_ST, grids, position_ST, end_ST)}
    weight = module.get_input_embeddings().weight
    return {"inputs_embeds": with_features(token_ids_ST, weight, image_features(backbone, images)), **positions}
