"""LoRA adapters in a model that is trained (PEFT): put in, taken out, switched off for a while.

The model keeps its class; PEFT replaces its linear layers by ones that add `alpha / rank * B A x`. The rest is frozen.
B begins at 0, so a policy with new adapters is the policy without them.
"""

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

_NAME = ".default."  # PEFT's name of the only adapter, within the names of parameters


def shape_of(lora: LoraConfig, backbone: nn.Module) -> AdapterShape:
    """The adapter that settings ask for on a model.

    Args:
        lora: The settings.
        backbone: The model without its output layer and without an adapter.

    Raises:
        LearnerError: If it has no linear layers, or none of the names that were asked for.
    """
    names = {name.rsplit(".", 1)[-1] for name, module in backbone.named_modules() if isinstance(module, nn.Linear)}
    if not names:
        raise LearnerError(
            f"update.lora: {type(backbone).__name__} has no layers of torch.nn.Linear, and adapters sit on those alone "
            "(GPT-2's are Conv1D): leave lora out, which trains all weights, or choose another policy"
        )
    for target in lora.targets or ():
        if target not in names:
            near = difflib.get_close_matches(target, sorted(names), n=1)
            hint = f"; did you mean '{near[0]}'?" if near else ""
            raise LearnerError(
                f"update.lora.targets: the policy has no linear layers named '{target}'{hint} "
                f"There are {', '.join(sorted(names))}"
            )
    return AdapterShape(lora.rank, lora.alpha, tuple(sorted(set(lora.targets or names))))


def add_adapters(model: nn.Module, shape: AdapterShape, seed: int) -> None:
    """Freeze a model and put new adapters into it. The global random state is as it was before.

    Args:
        model: Changed in place; adapters are float32 whatever its weights are.
        shape: Of the adapters.
        seed: Of the first weights of A; B begins at 0.

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
    """Were adapters put into it?"""
    return any(_NAME in name for name, _ in model.named_parameters())


def adapter_tensors(model: nn.Module, weights: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
    """The trained tensors of a model with adapters, by the names under which they are stored (not yet PEFT's).

    Args:
        model: Any that is trained; without adapters all of its weights are.
        weights: By parameter, where the model does not hold them whole.
    """
    if weights is None:
        weights = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
    return {name.replace(_NAME, "."): tensor for name, tensor in weights.items()}


def frozen_parameters(model: nn.Module) -> dict[int, Tensor]:
    """What adapters freeze, by id: given to `copy.deepcopy` as its memo, a copy shares it."""
    return {id(parameter): parameter for parameter in model.parameters() if not parameter.requires_grad}


def load_adapter_tensors(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Take up what `adapter_tensors` gave.

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
    """Write a policy's adapter in PEFT's layout, and which checkpoint's weights it was trained on."""
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
    """Merge the adapters of a model into its weights, in place; what it computes stays the same but for rounding.

    Parameters have their names without adapters again, and all of them are trained.
    """
    for name, module in list(model.named_modules()):
        if isinstance(module, _tuner_layer()):
            module.merge()
            parent = model.get_submodule(name.rpartition(".")[0])
            setattr(parent, name.rpartition(".")[2], module.get_base_layer())
    model.requires_grad_(True)


@contextmanager
def adapters_off(model: PreTrainedModel) -> Iterator[None]:
    """Inside, a model with adapters computes what its frozen weights alone do."""
    layers = [module for module in model.modules() if isinstance(module, _tuner_layer())]
    for layer in layers:
        layer.enable_adapters(False)
    try:
        yield
    finally:
        for layer in layers:
            layer.enable_adapters(True)


def check_same_shape(stored: AdapterShape, asked: AdapterShape, folder: str) -> None:
    """Make sure that a stored adapter is the one that the settings speak of.

    Raises:
        PolicyError: If it is not.
    """
    if stored != asked:
        raise PolicyError(
            f"the adapter in '{folder}' has rank {stored.rank}, alpha {stored.alpha:g} and targets "
            f"{', '.join(stored.targets)}; update.lora asks for rank {asked.rank}, alpha {asked.alpha:g} and targets "
            f"{', '.join(asked.targets)}. Train on with the adapter's own settings, or begin at the run's first "
            "checkpoint, which has none"
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
