"""Reading the weights of a folder that `check_folder` accepts, without instantiating the model where possible."""

from collections.abc import Mapping, Set
from pathlib import Path

from safetensors.torch import load_file
from torch import Tensor

from starpo.ragen.agents.policy.adapter import read_shape
from starpo.ragen.agents.policy.folder import describe_tensors
from starpo.ragen.agents.policy.load import load_policy
from starpo.ragen.config.model_files import weight_files


def read_weights(folder: str | Path, *, should_merge: bool = True) -> Mapping[str, Tensor]:
    """Read `model.safetensors`, or the files that its index names, and merge a LoRA adapter in the same folder.

    Args:
        folder: A policy in Hugging Face's layout.
        should_merge: Merge the adapter; otherwise ignore it.

    Returns:
        Tensors by name, on the CPU; each is merged when it is read (`merge`).

    Raises:
        PolicyError: If there is none, or the adapter is damaged.
    """
    weights: dict[str, Tensor] = {}
    for file in weight_files(Path(folder)):
        weights.update(load_file(file))
    if not should_merge or read_shape(folder) is None:
        return weights
    from starpo.ragen.agents.policy.merged_weights import merge

    return merge(weights, folder)


def read_module_weights(folder: str | Path, names: Set[str]) -> Mapping[str, Tensor]:
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
    is_alike = names <= describe_tensors(Path(folder)).keys()
    return read_weights(folder) if is_alike else load_policy(folder, "auto")[0].state_dict()
