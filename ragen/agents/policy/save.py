"""Writing a policy's folder."""

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
