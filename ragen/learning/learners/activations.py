"""Activation checkpointing: a layer's activations are computed again in the backward pass instead of being kept."""

from functools import partial
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer

from starpo.ragen.core.errors import LearnerError


def checkpoint_activations(model: nn.Module, *, is_cut_up: bool = False) -> None:
    """Make every transformer layer of a model keep its input alone when gradients are asked for.

    transformers' own switch acts in training mode only, and models that are trained here are in evaluation mode.

    Args:
        model: Changed in place.
        is_cut_up: Are its weights gathered for each layer and let go after it (ZeRO 3)? Then a layer is computed again
            inside a backward pass of its own ("reentrant"), which gathers them for as long as they are needed.

    Raises:
        LearnerError: If the model has no layers that are known to allow it.
    """
    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not layers:
        raise LearnerError(
            f"update.activation_checkpointing: {type(model).__name__} has no layers that transformers could compute "
            "again; set it to false"
        )
    for layer in layers:
        # a method of the layer, not a closure over it: a copy of the layer computes with weights of its own
        layer.forward = MethodType(partial(_forward_again, is_cut_up), layer)


def _forward_again(is_cut_up: bool, layer: nn.Module, hidden: Tensor, *args: Any, **kwargs: Any) -> Any:
    forward = MethodType(type(layer).forward, layer)
    if not torch.is_grad_enabled():
        return forward(hidden, *args, **kwargs)
    if is_cut_up and not hidden.requires_grad:  # frozen embeddings: without it the layer would get no gradient
        hidden = hidden.detach().requires_grad_(True)
    return checkpoint(partial(forward, **kwargs), hidden, *args, use_reentrant=is_cut_up, preserve_rng_state=False)
