"""Checkpoints with adapters, a learner that writes the requested checkpoint without training, and a GPU."""

import json
from pathlib import Path

from starpo.ragen.config.device import Device
from starpo.ragen.store.artifacts.files import entries_of
from starpo.schemas.manifest import FileEntry

FIRST, DATA = "0" * 32, "d" * 32
NUMBERS = (1, 2, 3)
H200 = Device("cuda", "NVIDIA H200", "580.95.05", "13.0", "13.1.0", num_gpus=1)


class Adapted:
    """Learner of adapters on the weights of the first checkpoint; loading its current checkpoint is a no-op."""

    is_deterministic = True

    def __init__(self, *_: object) -> None:
        self.checkpoint_key: str | None = None

    def load(self, folder: str | None, checkpoint_key: str, reference_folder: str | None) -> None:
        if checkpoint_key != self.checkpoint_key:
            assert folder is not None
            assert Path(folder, "model.safetensors").exists(), f"{folder} has no weights"
            self.checkpoint_key = checkpoint_key

    def save(self, folder: str, checkpoint_key: str) -> None:
        self.checkpoint_key = checkpoint_key
        write_adapted(Path(folder), checkpoint_key)

    def save_policy(self, folder: str, checkpoint_key: str) -> list[FileEntry]:
        self.save(folder, checkpoint_key)
        return entries_of(Path(folder))


def write_adapted(folder: Path, key: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "base.json").write_text(json.dumps({"checkpoint": FIRST}))
    (folder / "adapter_model.safetensors").write_text(key)


def key_of(number: int) -> str:
    return str(number) * 32
