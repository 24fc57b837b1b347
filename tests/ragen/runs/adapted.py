"""Checkpoints with adapters, and a learner that writes the requested checkpoint without training."""

import json
from pathlib import Path

FIRST, DATA = "0" * 32, "d" * 32
NUMBERS = (1, 2, 3)


class Adapted:
    """Learner of adapters on the weights of the first checkpoint; loading its current checkpoint is a no-op."""

    is_deterministic = True

    def __init__(self) -> None:
        self.key = ""

    def load(self, folder: str, checkpoint_key: str, reference_folder: str | None) -> None:
        if checkpoint_key != self.key:
            assert Path(folder, "model.safetensors").exists(), f"{folder} has no weights"

    def save(self, folder: str, checkpoint_key: str) -> None:
        self.key = checkpoint_key
        write_adapted(Path(folder), checkpoint_key)


def write_adapted(folder: Path, key: str) -> None:
    folder.mkdir()
    (folder / "base.json").write_text(json.dumps({"checkpoint": FIRST}))
    (folder / "adapter_model.safetensors").write_text(key)


def key_of(number: int) -> str:
    return str(number) * 32
