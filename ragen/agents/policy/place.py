"""The folder that a policy's name or path refers to, found without heavy imports or downloads."""

from pathlib import Path

from starpo.ragen.config.policy import PretrainedPolicy
from starpo.ragen.core.errors import PolicyError


def named_folder(policy: PretrainedPolicy) -> Path | None:
    """Return the folder that a policy's settings name; None if they name a model on the hub.

    Raises:
        PolicyError: If it is a path that does not exist.
    """
    name = policy.name_or_path
    folder = Path(name).expanduser()
    if folder.exists():
        return folder
    if _looks_like_a_path(name):
        raise PolicyError(
            f"policy.name_or_path = '{name}': there is no such folder. Give a folder with config.json, "
            "safetensors and a tokenizer, or a model's name on the Hugging Face hub, such as "
            "Qwen/Qwen2.5-0.5B-Instruct"
        )
    return None


def _looks_like_a_path(name: str) -> bool:
    return name.startswith((".", "/", "~")) or name.count("/") > 1 or name.endswith("/") or "\\" in name
