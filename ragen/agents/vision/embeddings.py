"""`model_inputs`: what a model reads of a context with images. The seam between contexts and models that see.

Legend: F placeholders of all images, D numbers of each, H hidden size.
"""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from starpo.ragen.agents.vision.families import FAMILIES
from starpo.ragen.agents.vision.image import Image
from starpo.ragen.agents.vision.image_table import FIRST_IMAGE_ID
from starpo.ragen.agents.vision.positions import Grid, grid_positions


def image_features(backbone: nn.Module, images: Sequence[Image]) -> Tensor:
    """Compute the features of images, [F, D]."""
    module: Any = backbone
    return FAMILIES[module.config.model_type]().features(module, images)


def embed(token_ids: Tensor, text: Callable[[Tensor], Tensor], features_FD: Tensor) -> Tensor:
    """Look up the embeddings of text tokens in one table and those of images in another, [..., H].

    Args:
        token_ids: int64 of any shape; ids of images are `FIRST_IMAGE_ID` plus a row of the features.
        text: Embeds ids of the vocabulary.
        features_FD: Features of the images; the first H of their numbers are their embeddings.
    """
    is_image = token_ids >= FIRST_IMAGE_ID
    embedded = text(token_ids.masked_fill(is_image, 0))
    image_embeddings = features_FD[token_ids[is_image] - FIRST_IMAGE_ID, : embedded.shape[-1]]
    return embedded.index_put((is_image,), image_embeddings.to(embedded.dtype))


def grids_of(backbone: nn.Module, images: Sequence[Image]) -> list[Grid] | None:
    """Return rows and columns of each image's tokens; None if positions are those of a plain sequence."""
    module: Any = backbone
    family, processor = FAMILIES[module.config.model_type](), getattr(module, "image_processor", None)
    grids = [grid for image in images if (grid := family.grid(processor, image)) is not None]
    return grids or None


def model_inputs(
    backbone: nn.Module,
    token_ids_ST: Tensor,
    images: Sequence[Image],
    position_ST: Tensor | None = None,
    end_ST: Tensor | None = None,
) -> dict[str, Any]:
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
    grids = grids_of(backbone, images)
    if grids is not None:
        positions = {"position_ids": grid_positions(token_ids_ST, grids, position_ST, end_ST)}
    return inputs_with(backbone, token_ids_ST, image_features(backbone, images)) | positions


def inputs_with(backbone: nn.Module, token_ids: Tensor, features_FD: Tensor) -> dict[str, Any]:
    """Return the keyword arguments with which the backbone reads tokens and features that are known, without mask and
    positions.

    Args:
        backbone: Model without its output layer, or the whole model.
        token_ids: int64 [..., T]; ids of images are `FIRST_IMAGE_ID` plus a row of the features.
        features_FD: Features of the images.
    """
    module: Any = backbone
    family, text = FAMILIES[module.config.model_type](), module.get_input_embeddings()
    if family.num_deep(module.config) == 0:
        return {"inputs_embeds": embed(token_ids, text, features_FD)}
    return _deep_inputs(module, token_ids, text, features_FD)


def _deep_inputs(
    module: Any, token_ids: Tensor, text: Callable[[Tensor], Tensor], features_FD: Tensor
) -> dict[str, Any]:
    """Return the inputs of a model that adds features of an image in several of its layers (Qwen3-VL).

    Such a model takes embedding and features from its encoder's output, for the tokens whose embedding is that of a
    placeholder. A placeholder that was sampled is a token like any other: its embedding is moved by the smallest number
    in one place, so that the model does not mistake it for an image.
    """
    is_image, placeholder = token_ids >= FIRST_IMAGE_ID, module.config.image_token_id
    embedded = text(token_ids.masked_fill(is_image, placeholder))
    is_sampled = token_ids == placeholder
    if is_sampled.any():
        first = embedded[..., 0].detach()
        step = torch.nextafter(first, torch.full_like(first, torch.inf)) - first
        embedded = torch.cat([embedded[..., :1] + (step * is_sampled)[..., None], embedded[..., 1:]], dim=-1)
    parts = features_FD[token_ids[is_image] - FIRST_IMAGE_ID].split(embedded.shape[-1], dim=-1)
    output = SimpleNamespace(pooler_output=[parts[0]], deepstack_features=[[part] for part in parts[1:]])
    return {"inputs_embeds": embedded, "mm_encoder_outputs": {"image": output}}
