"""Gradients through a backward pass in float16, in which small ones would vanish (loss scaling).

loss, parameters --times 2^16, 2^12, ... until they are finite--> gradients of the loss
"""

from collections.abc import Sequence

import torch
from torch import Tensor

_SCALES = (2.0**16, 2.0**12, 2.0**8, 2.0**4, 1.0)


def scaled_gradients(loss: Tensor, parameters: Sequence[Tensor]) -> Sequence[Tensor | None]:
    """Return the gradients of a scalar, computed as those of a multiple of it (Micikevicius et al. 2018,
    arXiv:1710.03740, section 3.2).

    The multiple is the largest of 2^16, 2^12, 2^8, 2^4 and 1 whose gradients are finite. It follows from the
    micro-batch alone: there is no state, as a scale that adapts over steps has, that a checkpoint would have to keep.
    The graph is kept until then, so activations are not freed on the way back.

    Returns:
        In the dtype of each parameter; not finite if they are not at any multiple. None where the loss does not depend
        on a parameter.
    """
    for scale in _SCALES:
        gradients = torch.autograd.grad(loss * scale, parameters, allow_unused=True, retain_graph=scale > 1)
        norm = torch.nn.utils.get_total_norm([gradient for gradient in gradients if gradient is not None])
        if torch.isfinite(norm):
            break
    return [None if gradient is None else gradient.div_(scale) for gradient in gradients]
