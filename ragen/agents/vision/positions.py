"""Positions in two dimensions: of models that place an image's tokens in rows and columns (Qwen2.5-VL, Qwen3-VL).

Every token has three positions: time, row, column. Those of text are equal and count up; those of an image are its
beginning plus row and column, and the text after it goes on after the longer side:

    tokens   a b [2 x 3 image] c        time    0 1 2 2 2 2 2 2 5
                                        row     0 1 2 2 2 3 3 3 5
                                        column  0 1 2 3 4 2 3 4 5

Legend: S rows of a micro-batch, T tokens.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from starpo.ragen.agents.vision.image_table import FIRST_IMAGE_ID

Grid = tuple[int, int]
"""Rows and columns of an image's tokens."""


def grid_positions(
    token_ids_ST: Tensor, grids: Sequence[Grid], position_ST: Tensor | None = None, end_ST: Tensor | None = None
) -> Tensor:
    """Return time, row and column of every token, int64 [3, S, T].

    Args:
        token_ids_ST: int64; the ids of images are numbered one after the other from `FIRST_IMAGE_ID`.
        grids: The images' grids, in that order.
        position_ST: Index of each token in its own context, where contexts share prefixes; None if that is its index in
            the row.
        end_ST: Where the branch of each token ends (`MicroBatch.end_ST`); None for plain contexts.
    """
    length = token_ids_ST.shape[1]
    plain_ST = torch.arange(length, device=token_ids_ST.device).expand(token_ids_ST.shape)
    positions_3ST = (plain_ST if position_ST is None else position_ST).expand(3, -1, -1).clone()
    first = FIRST_IMAGE_ID
    for rows, columns in grids:
        number = rows * columns
        offset = torch.arange(number, device=token_ids_ST.device)
        moved = torch.stack([-offset, offset // columns - offset, offset % columns - offset])
        for row, start in torch.nonzero(token_ids_ST == first).tolist():
            after = start + number
            end = length if end_ST is None else int(end_ST[row, after - 1])
            positions_3ST[:, row, start:after] += moved
            positions_3ST[:, row, after:end] -= number - max(rows, columns)
        first += number
    return positions_3ST
