"""LoRA adapters in a trained model (PEFT): added, merged, temporarily disabled.

The model keeps its class; PEFT replaces its linear layers by layers that add `alpha / rank * B A x`. All other weights
are frozen. B is initialised to 0, so new adapters do not change the policy.
"""

import copy
import difflib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from starpo.ragen.agents.policy.adapter import ADAPTER_CONFIG, ADAPTER_WEIGHTS, BASE, PREFIX, AdapterShape
from starpo.ragen.config.update import LoraConfig
from starpo.ragen.core.errors import LearnerError, MissingPackageError, PolicyError
from starpo.ragen.core.seeding import derive_seed

_NAME = ".default."  # PEFT's name of the only adapter, as it appears in parameter names


def shape_of(lora: LoraConfig, backbone: nn.Module) -> AdapterShape:
    """Return the shape of the adapter that the settings request for a model.

    Args:
        lora: The settings.
        backbone: The model without its output layer and without an adapter.

    Raises:
        LearnerError: If the model has no linear layers, or lacks one of the requested names.
    """
    names = {name.rsplit(".", 1)[-1] for name, module in backbone.named_modules() if isinstance(module, nn.Linear)}
    if not names:
        raise LearnerError(
            f"update.lora: {type(backbone).__name__} has no torch.nn.Linear layers, the only ones that take adapters "
            "(GPT-2's are Conv1D): leave lora out, which trains all weights, or choose another policy"
        )
    for target in lora.targets or ():
        if target not in names:
            near = difflib.get_close_matches(target, sorted(names), n=1)
            hint = f"; did you mean '{near[0]}'?" if near else "."
            raise LearnerError(
                f"update.lora.targets: the policy has no linear layers named '{target}'{hint} "
                f"It has {', '.join(sorted(names))}"
            )
    return AdapterShape(lora.rank, lora.alpha, tuple(sorted(set(lora.targets or names))))


def copied(policy: PreTrainedModel, *, is_base_shared: bool = True) -> PreTrainedModel:
    """Return a copy of a policy, such as a new process reward model.

    Args:
        policy: The policy; its adapters, if any, are copied too.
        is_base_shared: Share the weights frozen by adapters with the policy instead of copying them.
    """
    return copy.deepcopy(policy, frozen_parameters(policy) if is_base_shared else {})


def add_adapters(model: nn.Module, shape: AdapterShape, seed: int) -> None:
    """Freeze a model and add new adapters to it. The global random state is preserved.

    Args:
        model: Changed in place; adapters are float32 whatever the dtype of its weights.
        shape: Shape of the adapters.
        seed: Seed of the initial weights of A; B is initialised to 0.

    Raises:
        MissingPackageError: If PEFT is not installed.
    """
    peft = _peft()
    config = peft.LoraConfig(
        r=shape.rank,
        lora_alpha=shape.alpha,
        target_modules=list(shape.targets),
        lora_dropout=0.0,
        bias="none",
    )
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(derive_seed(seed, "lora"))
        peft.inject_adapter_in_model(config, model)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()


def has_adapters(model: nn.Module) -> bool:
    """Whether the model has adapters."""
    return any(_NAME in name for name, _ in model.named_parameters())


def adapter_tensors(model: nn.Module, weights: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
    """Return the trained tensors of a model with adapters, by the names used for storage (without PEFT's prefix).

    Args:
        model: The model; without adapters, all of its weights count as trained.
        weights: Parameter -> trained weights, if the model is sharded.
    """
    if weights is None:
        weights = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
    return {name.replace(_NAME, "."): tensor for name, tensor in weights.items()}


def frozen_parameters(model: nn.Module) -> dict[int, Tensor]:
    """Return the frozen parameters by id, as a memo for `copy.deepcopy`: a copy made with it shares them."""
    return {id(parameter): parameter for parameter in model.parameters() if not parameter.requires_grad}


def load_adapter_tensors(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Load the output of `adapter_tensors`.

    Raises:
        KeyError: If the names are not those of the model's trained tensors.
        ValueError: If a shape differs.
    """
    trained = {name.replace(_NAME, "."): p for name, p in model.named_parameters() if p.requires_grad}
    if trained.keys() != tensors.keys():
        raise KeyError(min(trained.keys() ^ tensors.keys()))
    for name, parameter in trained.items():
        if parameter.shape != tensors[name].shape:
            raise ValueError(f"{name} has shape {tuple(tensors[name].shape)}, expected {tuple(parameter.shape)}")
        parameter.data.copy_(tensors[name])


def write_adapter(tensors: Mapping[str, Tensor], shape: AdapterShape, base_key: str, folder: Path) -> None:
    """Write a policy's adapter in PEFT's layout, and the key of the checkpoint whose weights it was trained on."""
    contiguous = {PREFIX + name: tensor.detach().float().cpu().contiguous() for name, tensor in tensors.items()}
    save_file(contiguous, folder / ADAPTER_WEIGHTS, metadata={"format": "pt"})
    config: dict[str, Any] = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": None,
        "inference_mode": True,
        "r": shape.rank,
        "lora_alpha": shape.alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": list(shape.targets),
    }
    (folder / ADAPTER_CONFIG).write_text(json.dumps(config, indent=2) + "\n")
    (folder / BASE).write_text(json.dumps({"checkpoint": base_key}) + "\n")


def merge_adapters(model: nn.Module) -> None:
    """Merge the adapters of a model into its weights, in place; outputs stay the same up to rounding.

    Parameters get back their names without adapters, and all of them become trainable.
    """
    for name, module in list(model.named_modules()):
        if isinstance(module, _tuner_layer()):
            module.merge()
            parent = model.get_submodule(name.rpartition(".")[0])
            setattr(parent, name.rpartition(".")[2], module.get_base_layer())
    model.requires_grad_(True)


@contextmanager
def adapters_off(model: PreTrainedModel) -> Iterator[None]:
    """Disable the adapters of a model inside the context."""
    layers = [module for module in model.modules() if isinstance(module, _tuner_layer())]
    for layer in layers:
        layer.enable_adapters(False)
    try:
        yield
    finally:
        for layer in layers:
            layer.enable_adapters(True)


def check_same_shape(stored: AdapterShape, requested: AdapterShape, folder: str) -> None:
    """Check that a stored adapter has the shape that the settings request.

    Raises:
        PolicyError: If it has another one.
    """
    if stored != requested:
        raise PolicyError(
            f"the adapter in '{folder}' has rank {stored.rank}, alpha {stored.alpha:g} and targets "
            f"{', '.join(stored.targets)}; update.lora asks for rank {requested.rank}, alpha {requested.alpha:g} and "
            f"targets {', '.join(requested.targets)}. Continue with the adapter's own settings, or start from the "
            "run's first checkpoint, which has no adapter"
        )


def _tuner_layer() -> Any:
    _peft()
    from peft.tuners.tuners_utils import BaseTunerLayer

    return BaseTunerLayer


def _peft() -> Any:
    try:
        import peft
    except ImportError as error:
        raise MissingPackageError(
            "update.lora needs the package peft, which is not installed: pip install 'starpo[lora]'"
        ) from error
    return peft
