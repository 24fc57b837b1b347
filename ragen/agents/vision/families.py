"""Families of models that see: how each prepares an image, and where its placeholders are.

    folder -> family_of -> Family: image tokens for prompts; features of images for `embeddings`

A new family is a file with its class, and a function in `FAMILIES` that loads it when a model of it is met.
"""

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import PreTrainedTokenizerBase

from starpo.ragen.agents.policy.folder import read_config
from starpo.ragen.agents.vision.image_tokens import MODEL_TYPE

if TYPE_CHECKING:
    from starpo.ragen.agents.vision.family import Family
    from starpo.ragen.agents.vision.image_tokens import ImageTokens


@cache
def _tiny() -> "Family":
    from starpo.ragen.agents.vision.tiny_vision import TinyVision

    return TinyVision()


@cache
def _smolvlm() -> "Family":
    from starpo.ragen.agents.vision.smolvlm import SmolVLM

    return SmolVLM()


@cache
def _qwen25() -> "Family":
    from starpo.ragen.agents.vision.qwen_vl import Qwen25VL

    return Qwen25VL()


@cache
def _qwen3() -> "Family":
    from starpo.ragen.agents.vision.qwen_vl import Qwen3VL

    return Qwen3VL()


FAMILIES: dict[str, "Callable[[], Family]"] = {
    MODEL_TYPE: _tiny,
    "smolvlm": _smolvlm,
    "qwen2_5_vl": _qwen25,
    "qwen3_vl": _qwen3,
}
"""`model_type` in config.json -> its family."""


def family_of(config: Mapping[str, Any]) -> "Family | None":
    """Return the family of a model; None if it sees no images, or is not supported."""
    model_type = str(config.get("model_type"))
    return FAMILIES[model_type]() if model_type in FAMILIES else None


def image_tokens_of(folder: str | Path, tokenizer: PreTrainedTokenizerBase) -> "ImageTokens | None":
    """Return the tokens around an image, from a policy's folder without what prepares images; None if it sees none.

    Raises:
        PolicyError: If its configuration is missing or damaged.
    """
    config = read_config(Path(folder))
    family = family_of(config)
    return None if family is None else family.image_tokens(config, tokenizer, None)
