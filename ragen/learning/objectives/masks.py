"""Statistics over the tokens of a mask. What lies outside a mask never matters, not even NaN.

Legend: B trajectories, T tokens.
"""

import torch
from torch import Tensor

ZERO_STD = 1e-6
"""A standard deviation up to this is none: the same bound below which filters call a group's returns equal."""


_NO_TURN = torch.iinfo(torch.int64).min


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean over the elements of a mask.

    Args:
        values: Any shape, floating.
        mask: bool, same shape.

    Returns:
        Scalar; the denominator is the number of elements in the mask; 0 for an empty mask.
    """
    _check_same_shape(values, mask)
    return torch.where(mask, values, 0).sum() / mask.sum().clamp(min=1)


def masked_std(values: Tensor, mask: Tensor, ddof: int = 0) -> Tensor:
    """Standard deviation over the elements of a mask.

    Args:
        values: Any shape, floating.
        mask: bool, same shape.
        ddof: The sum of squares is divided by the number of elements less this, by 1 where nothing is left.

    Returns:
        Scalar; 0 for an empty mask.
    """
    mean = masked_mean(values, mask)
    variance = masked_mean((torch.where(mask, values, mean) - mean).square(), mask)
    return (variance * bessel(mask.sum(), ddof).to(variance)).sqrt()


def bessel(count: Tensor, ddof: int) -> Tensor:
    """What a variance over `count` numbers (ddof 0) is multiplied by to have this ddof: `count / (count - ddof)`.

    Any shape, float64; where nothing would be left to divide by, the variance is 0 anyway, and stays.
    """
    return count.double() / (count - ddof).clamp(min=1)


def whiten(values: Tensor, mask: Tensor, ddof: int = 0) -> Tensor:
    """Shift and scale the elements of a mask to mean 0 and standard deviation 1.

    Args:
        values: Any shape, floating.
        mask: bool, same shape.
        ddof: Of that deviation; 1 in the public code.

    Returns:
        Same shape; 0 outside the mask. Values that are all equal become 0: there is no deviation to scale by.
    """
    std = masked_std(values, mask, ddof)
    centred = torch.where(mask, values - masked_mean(values, mask), 0)
    return centred / torch.where(std > ZERO_STD, std, 1)


def turn_starts(turn_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Mark the first response token of every turn; see `turn_ends`."""
    return turn_ends(-turn_BT.flip(1), mask_BT.flip(1)).flip(1)


def turn_ends(turn_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Mark the last response token of every turn, from the structure alone (never from where rewards are not zero).

    Args:
        turn_BT: int; the turn each response token belongs to, never falling along a row. Ignored outside the mask.
        mask_BT: bool; the response tokens. Holes between them are allowed.

    Returns:
        bool [B, T]; as many marks a row as it has turns with response tokens.
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
