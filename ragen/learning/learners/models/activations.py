"""Activation checkpointing: a layer's activations are recomputed in the backward pass instead of being stored."""

from functools import partial
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer

from starpo.ragen.core.errors import LearnerError


def checkpoint_activations(model: nn.Module, *, is_cut_up: bool = False) -> None:
    """Make every transformer layer of a model store only its input when gradients are enabled.

    transformers' own switch works in training mode only, and models are trained here in evaluation mode.

    Args:
        model: Changed in place.
        is_cut_up: Whether weights are gathered layer by layer and then released (ZeRO 3). A layer is then recomputed
            inside a backward pass of its own ("reentrant"), which gathers the weights for as long as they are needed.

    Raises:
        LearnerError: If the model has no layers that are known to support it.
    """
    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not layers:
        raise LearnerError(
            f"update.activation_checkpointing: {type(model).__name__} has no layers that transformers can recompute; "
            "set it to false"
        )
    for layer in layers:
        # a method of the layer, not a closure over it, so that a copy of the layer uses its own weights
        layer.forward = MethodType(partial(_forward_again, is_cut_up), layer)


def _forward_again(is_cut_up: bool, layer: nn.Module, hidden: Tensor, *args: Any, **kwargs: Any) -> Any:
    forward = MethodType(type(layer).forward, layer)
    if not torch.is_grad_enabled():
        return forward(hidden, *args, **kwargs)
    if is_cut_up and not hidden.requires_grad:  # frozen embeddings: otherwise the layer would get no gradient
        hidden = hidden.detach().requires_grad_(True)
    return checkpoint(partial(forward, **kwargs), hidden, *args, use_reentrant=is_cut_up, preserve_rng_state=False)
