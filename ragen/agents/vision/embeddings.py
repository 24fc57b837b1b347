"""`embed`: input embeddings of a context with images. The seam between contexts and models that see.

Legend: F placeholders of all images, H hidden size.
"""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from starpo.ragen.agents.vision.families import FAMILIES
from starpo.ragen.agents.vision.image import Image
from starpo.ragen.agents.vision.image_table import FIRST_IMAGE_ID


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


def model_inputs(backbone: nn.Module, token_ids: Tensor, images: Sequence[Image]) -> dict[str, Tensor]:
    """Return the keyword arguments with which the backbone reads these tokens.

    Args:
        backbone: Model without its output layer.
        token_ids: int64; ids of images are numbered over `images` (`ImageTable.local`).
        images: The distinct images among them.
    """
    if not images:
        return {"input_ids": token_ids}
    module: Any = backbone
    weight = module.get_input_embeddings().weight
    return {"inputs_embeds": with_features(token_ids, weight, image_features(backbone, images))}
