"""Reading the weights of a checkpoint folder, without instantiating the model where possible."""

from collections.abc import Set
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor

from starpo.ragen.agents.policy.adapter import merge
from starpo.ragen.agents.policy.load import load_policy
from starpo.ragen.config.model_files import weight_files
from starpo.ragen.core.errors import PolicyError


def read_weights(folder: str | Path, *, should_merge: bool = True) -> dict[str, Tensor]:
    """Read `model.safetensors`, or the files that its index names, and merge a LoRA adapter in the same folder.

    Args:
        folder: A policy in Hugging Face's layout.
        should_merge: Merge the adapter; otherwise ignore it.

    Returns:
        Tensors by name, on the CPU.

    Raises:
        PolicyError: If there is none, or one is damaged.
    """
    weights: dict[str, Tensor] = {}
    for file in weight_files(Path(folder)):
        try:
            weights.update(load_file(file))
        except (SafetensorError, OSError) as error:
            raise _unreadable(file, error) from error
    return merge(weights, folder) if should_merge else weights


def read_module_weights(folder: str | Path, names: Set[str]) -> dict[str, Tensor]:
    """Read weights under the parameter names of a model in memory, and merge the LoRA adapter in the same folder.

    transformers saves the experts of a mixture one by one and fuses them in memory. If names differ, its own loading
    code reads the weights, which temporarily takes a second model in memory.

    Args:
        folder: A policy in Hugging Face's layout.
        names: Parameter names of the model; tied parameters appear once.

    Returns:
        Tensors by name, on the CPU.

    Raises:
        PolicyError: If one is missing or damaged.
    """
    found: set[str] = set()
    for file in weight_files(Path(folder)):
        try:
            with safe_open(file, framework="pt") as opened:
                found.update(opened.keys())
        except (SafetensorError, OSError) as error:
            raise _unreadable(file, error) from error
    return read_weights(folder) if names <= found else dict(load_policy(folder, "auto")[0].state_dict())


def _unreadable(file: Path, error: Exception) -> PolicyError:
    return PolicyError(f"the weights '{file}' cannot be read: {error}; write or fetch them again")
