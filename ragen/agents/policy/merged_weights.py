"""`MergedWeights`: a model's weights with a LoRA adapter, for whoever copies them one by one."""

from collections import UserDict
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from starpo.ragen.agents.policy.adapter import PREFIX, Adapter, read_adapter
from starpo.ragen.core.errors import PolicyError


class MergedWeights(UserDict[str, Tensor]):
    """Weights of a model, each merged with an adapter when it is read: memory for one at a time, not for a copy."""

    def __init__(self, weights: Mapping[str, Tensor], adapter: Adapter) -> None:
        """Refer to weights by name."""
        super().__init__(weights)
        self._adapter = adapter

    def __getitem__(self, name: str) -> Tensor:
        return self._adapter.merged(name, self.data[name])


def merge(weights: Mapping[str, Tensor], folder: str | Path) -> Mapping[str, Tensor]:
    """Merge the adapter in a policy's folder, if it has one, into the weights of the model.

    Returns:
        The weights by name; reading one raises PolicyError if the adapter's matrices do not fit it.

    Raises:
        PolicyError: If the adapter is damaged, or if it is for layers that the weights do not have.
    """
    adapter = read_adapter(folder)
    if adapter is None:
        return weights
    stems = {
        name: name.removeprefix(PREFIX).removesuffix(".lora_A.weight").removesuffix(".lora_B.weight")
        for name in adapter.tensors
    }
    strangers = [name for name, stem in stems.items() if f"{stem}.weight" not in weights]
    if strangers:
        raise PolicyError(
            f"the adapter in '{folder}' holds {min(strangers)}, which matches no linear layer of the base weights; "
            "they do not belong together. Fetch the checkpoint again"
        )
    return MergedWeights(weights, adapter)
