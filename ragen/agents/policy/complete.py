"""Complete checkpoint folders: a checkpoint with LoRA adapters has its base weights in another checkpoint.

    checkpoint/<key>/ adapter_*, base.json -> links to its files and to the base's model*.safetensors -> folder

transformers, PEFT, rollout engines and learners can load the resulting folder directly. Nothing is copied.
"""

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from starpo.ragen.agents.policy.links import link
from starpo.schemas.manifest import MANIFEST_NAME


def complete(folder: str, folder_of: Callable[[str], str]) -> str:
    """Return a local folder with a checkpoint's files and, if they are adapters, the weights of their base.

    Args:
        folder: Folder of the checkpoint.
        folder_of: Returns the folder for the base's key.

    Raises:
        PolicyError: If the checkpoint's record of its base is damaged.
    """
    files = _base_weights(folder, folder_of)
    if not files:
        return folder
    files += sorted(path for path in Path(folder).iterdir() if path.is_file() and path.name != MANIFEST_NAME)
    return str(_linked({file.name: file.resolve() for file in files}))


def complete_in_place(folder: str, folder_of: Callable[[str], str]) -> None:
    """Make a folder that belongs to no store complete, by links to the weights of its base, if it holds adapters.

    Args:
        folder: As for `complete`; it is changed.
        folder_of: As for `complete`.

    Raises:
        PolicyError: As for `complete`.
    """
    for file in _base_weights(folder, folder_of):
        link(Path(folder, file.name), file)


def _base_weights(folder: str, folder_of: Callable[[str], str]) -> list[Path]:
    from starpo.ragen.agents.policy.adapter import base_of  # imports torch

    base_key = base_of(folder)
    return [] if base_key is None else sorted(Path(folder_of(base_key)).glob("model*.safetensors*"))


def _linked(targets: dict[str, Path]) -> Path:
    """Return a folder of symbolic links, created once per set of targets; it may be deleted at any time."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "starpo" / "complete"
    name = hashlib.sha256("\0".join(f"{name}\0{target}" for name, target in targets.items()).encode()).hexdigest()
    folder = cache / name
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as temporary:
        made = Path(temporary) / "links"
        made.mkdir()
        for file, target in targets.items():
            link(made / file, target)
        with contextlib.suppress(OSError):  # another process was first
            made.rename(folder)
    return folder
