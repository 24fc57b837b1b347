"""Reading the weights of a checkpoint folder, without the model around them."""

from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from starpo.ragen.agents.policy.adapter import merge
from starpo.ragen.core.errors import PolicyError


def read_weights(folder: str | Path, *, should_merge: bool = True) -> dict[str, Tensor]:
    """Read `model.safetensors`, or the shards `model-*.safetensors`; a LoRA adapter beside them is merged in.

    Args:
        folder: A policy in Hugging Face's layout.
        should_merge: false: leave the adapter out.

    Returns:
        Tensors by name, on the CPU.

    Raises:
        PolicyError: If there is none, or one is damaged.
    """
    files = sorted(Path(folder).glob("model-*-of-*.safetensors")) or sorted(Path(folder).glob("model.safetensors"))
    if not files:
        raise PolicyError(
            f"'{folder}' has no weights model.safetensors; save the policy with model.save_pretrained(folder)"
        )
    weights: dict[str, Tensor] = {}
    for file in files:
        try:
            weights.update(load_file(file))
        except (SafetensorError, OSError) as error:
            raise PolicyError(f"the weights '{file}' cannot be read: {error}; write or fetch them again") from error
    return merge(weights, folder) if should_merge else weights
