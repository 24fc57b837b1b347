"""Statistics over the tokens of a mask. Values outside the mask have no effect, not even NaN.

Legend: B trajectories, T tokens.
"""

import torch
from torch import Tensor

ZERO_STD = 1e-6
"""A standard deviation up to this counts as 0; equals `schemas.rules.ZERO_VARIANCE_STD`, the bound of the filters."""


_NO_TURN = torch.iinfo(torch.int64).min


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean over the elements of a mask.

    Args:
        values: Any shape, floating.
        mask: bool, same shape.

    Returns:
        Scalar, the sum divided by the number of elements in the mask; 0 for an empty mask.
    """
    _check_same_shape(values, mask)
    return torch.where(mask, values, 0).sum() / mask.sum().clamp(min=1)


def masked_std(values: Tensor, mask: Tensor, ddof: int = 0) -> Tensor:
    """Standard deviation over the elements of a mask.

    Args:
        values: Any shape, floating.
        mask: bool, same shape.
        ddof: Delta degrees of freedom: the sum of squares is divided by `max(1, number of elements - ddof)`.

    Returns:
        Scalar; 0 for an empty mask.
    """
    mean = masked_mean(values, mask)
    variance = masked_mean((torch.where(mask, values, mean) - mean).square(), mask)
    return (variance * bessel(mask.sum(), ddof).to(variance)).sqrt()


def bessel(count: Tensor, ddof: int) -> Tensor:
    """Factor from a variance with ddof 0 over `count` numbers to one with this ddof: `count / max(1, count - ddof)`.

    Any shape, float64. Where `count <= ddof`, the variance is 0 anyway and stays 0.
    """
    return count.double() / (count - ddof).clamp(min=1)


def whiten(values: Tensor, mask: Tensor, ddof: int = 0) -> Tensor:
    """Shift and scale the elements of a mask to mean 0 and standard deviation 1.

    Args:
        values: Any shape, floating.
        mask: bool, same shape.
        ddof: Delta degrees of freedom of that deviation; 1 in the public code.

    Returns:
        Same shape; 0 outside the mask. If all values are equal, they become 0.
    """
    std = masked_std(values, mask, ddof)
    centred = torch.where(mask, values - masked_mean(values, mask), 0)
    return centred / torch.where(std > ZERO_STD, std, 1)


def turn_starts(turn_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Mark the first response token of every turn; see `turn_ends`."""
    return turn_ends(-turn_BT.flip(1), mask_BT.flip(1)).flip(1)


def turn_ends(turn_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Mark the last response token of every turn, from the turn indices only (never from non-zero rewards).

    Args:
        turn_BT: int; turn that each response token belongs to, non-decreasing along a row. Ignored outside the mask.
        mask_BT: bool; the response tokens. Holes between them are allowed.

    Returns:
        bool [B, T]; a row has as many marks as turns with response tokens.
    """
    _check_same_shape(turn_BT, mask_BT)
    is_end_BT = torch.zeros_like(mask_BT)
    next_turn_B = torch.full_like(turn_BT[:, 0], _NO_TURN) if turn_BT.shape[1] else turn_BT.new_empty(len(turn_BT))
    for t in reversed(range(turn_BT.shape[1])):
        mask_B = mask_BT[:, t]
        is_end_BT[:, t] = mask_B & (turn_BT[:, t] != next_turn_B)
        next_turn_B = torch.where(mask_B, turn_BT[:, t], next_turn_B)
    return is_end_BT


def _check_same_shape(values: Tensor, mask: Tensor) -> None:
    assert values.shape == mask.shape, f"values {tuple(values.shape)} and mask {tuple(mask.shape)} differ in shape"
    assert mask.dtype == torch.bool, f"a mask is bool, not {mask.dtype}"
