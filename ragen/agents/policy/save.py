"""Writing a policy's folder."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from starpo.ragen.config.device import Device


def save_policy(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: str | Path) -> None:
    """Write config, weights (safetensors), tokenizer and what prepares images into a local folder for `load_policy`."""
    with without_progress_bars():
        model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    processor = getattr(model.base_model, "image_processor", None)
    if processor is not None:
        processor.save_pretrained(folder)


def make_portable(folder: Path) -> None:
    """Rewrite `tokenizer_config.json` so that transformers 4 reads it too, and transformers 5 as before.

    transformers 5 writes the name of a class, and a form of the list of special tokens, that only it knows.
    """
    file = folder / "tokenizer_config.json"
    config = json.loads(file.read_text(encoding="utf-8"))
    if config.get("tokenizer_class") == "TokenizersBackend":
        config["tokenizer_class"] = "PreTrainedTokenizerFast"
    if isinstance(config.get("extra_special_tokens"), list):
        config["additional_special_tokens"] = config.pop("extra_special_tokens")
    file.write_text(json.dumps(config, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


@contextmanager
def without_progress_bars() -> Iterator[None]:
    """Suppress transformers' progress bars, for files and for weights, in logs and terminals.

    Also silence DeepSpeed, if installed, which accelerate imports when a model is saved: without a GPU it prints a
    warning to standard output, mixed into a command's output, unless DS_ACCELERATOR is set to 'cpu'.
    """
    if not Device.here().is_gpu:
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    was_enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_enabled:
            logging.enable_progress_bar()
