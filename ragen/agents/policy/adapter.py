"""LoRA adapters beside a policy's weights, in PEFT's layout: reading them, and merging one into a weight.

    adapter_config.json, adapter_model.safetensors    as PEFT writes them
    base.json                                         the checkpoint whose weights they were trained on

Only plain LoRA on linear layers is supported: `W + alpha / rank * B A`. This does not need PEFT, so rollouts run
without it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from starpo.ragen.core.errors import PolicyError

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
BASE = "base.json"
PREFIX = "base_model.model."
"""Prefix that PEFT adds to the names of a model's parameters."""

_REFUSED = (
    "use_dora",
    "use_rslora",
    "use_qalora",
    "use_bdlora",
    "lora_bias",
    "alora_invocation_tokens",
    "modules_to_save",
    "rank_pattern",
    "alpha_pattern",
    "fan_in_fan_out",
)
_INITS = (True, False, "gaussian", "eva", "orthogonal")
"""Initialisations that leave the base weights unchanged; PiSSA, OLoRA and others change them, but not in the folder."""


@dataclass(frozen=True)
class AdapterShape:
    """Dimensions and positions of an adapter's matrices.

    Attributes:
        rank: Inner dimension.
        alpha: The product is multiplied by alpha / rank.
        targets: Last name components of the adapted linear layers, sorted.
    """

    rank: int
    alpha: float
    targets: tuple[str, ...]


def read_shape(folder: str | Path) -> AdapterShape | None:
    """Read the shape of the adapter in a policy's folder; None without an adapter.

    Raises:
        PolicyError: If its configuration is damaged, or if it is of an unsupported kind.
    """
    path = Path(folder) / ADAPTER_CONFIG
    if not path.is_file():
        return None
    try:
        config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        shape = AdapterShape(
            int(config["r"]), float(config["lora_alpha"]), tuple(sorted(map(str, config["target_modules"])))
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PolicyError(
            f"'{path}' is not the configuration of a LoRA adapter: {type(error).__name__}: {error}"
        ) from error
    odd = [name for name in _REFUSED if config.get(name)]
    odd += ["bias"] if config.get("bias", "none") != "none" else []
    odd += ["init_lora_weights"] if config.get("init_lora_weights", True) not in _INITS else []
    if config.get("peft_type") != "LORA" or odd:
        raise PolicyError(
            f"'{path}' is not a plain LoRA adapter ({', '.join(odd) or config.get('peft_type')}): merge it into its "
            "weights with PEFT's merge_and_unload(), save the model, and give that folder"
        )
    return shape


@dataclass(frozen=True)
class Adapter:
    """A loaded adapter.

    Attributes:
        folder: Folder that it was read from.
        shape: Its shape.
        tensors: Its matrices, under PEFT's names.
    """

    folder: str
    shape: AdapterShape
    tensors: Mapping[str, Tensor]

    def merged(self, name: str, weight: Tensor) -> Tensor:
        """Merge the adapter into a weight of the model, in float32; a weight without an adapter is returned unchanged.

        Raises:
            PolicyError: If the adapter's matrices do not fit the weight.
        """
        stem = f"{PREFIX}{name.removesuffix('.weight')}"
        lora_a, lora_b = self.tensors.get(f"{stem}.lora_A.weight"), self.tensors.get(f"{stem}.lora_B.weight")
        if lora_a is None and lora_b is None:
            return weight
        if lora_a is None or lora_b is None or weight.shape != (lora_b.shape[0], lora_a.shape[1]):
            raise PolicyError(
                f"the adapter in '{self.folder}' does not fit the base weight '{name}'; they do not belong "
                "together. Fetch the checkpoint again"
            )
        change = torch.mm(lora_b.float(), lora_a.float()) * (self.shape.alpha / self.shape.rank)
        return (weight.float() + change).to(weight.dtype)


def read_adapter(folder: str | Path) -> Adapter | None:
    """Read the adapter in a policy's folder; None without an adapter.

    Raises:
        PolicyError: If it is damaged, or if it is of an unsupported kind.
    """
    shape = read_shape(folder)
    if shape is None:
        return None
    path = Path(folder) / ADAPTER_WEIGHTS
    try:
        return Adapter(str(folder), shape, load_file(path))
    except (SafetensorError, OSError) as error:
        raise PolicyError(f"the adapter '{path}' cannot be read: {error}; fetch the checkpoint again") from error


def base_of(folder: str | Path) -> str | None:
    """Return the key of the checkpoint that a folder's adapter was trained on; None if the folder has its own weights.

    Raises:
        PolicyError: If `base.json` is damaged.
    """
    path = Path(folder) / BASE
    if not path.is_file():
        return None
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["checkpoint"])
    except (ValueError, KeyError, TypeError) as error:
        raise PolicyError(f"'{path}' does not name a checkpoint: {error}; fetch the checkpoint again") from error
