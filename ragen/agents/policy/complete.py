"""A checkpoint's folder with all that a policy needs: one with LoRA adapters has its weights in another checkpoint.

    checkpoint/<key>/ adapter_*, base.json -> links to its files and to the base's model*.safetensors -> folder

transformers, PEFT, rollout engines and learners load that folder as it is. Nothing is copied.
"""

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from starpo.ragen.agents.policy.adapter import base_of
from starpo.ragen.store import Store
from starpo.schemas.manifest import MANIFEST_NAME


def complete_folder(store: Store, key: str, folder_of: Callable[[str], str] | None = None) -> str:
    """A local folder with a checkpoint's files and, where they are adapters, their base's weights beside them.

    Args:
        store: Where both are.
        key: Of the checkpoint.
        folder_of: Gives the folder of the base's key. None: it is taken from the store, where it must not be dropped.

    Raises:
        ArtifactMissingError: If the checkpoint or its base is not stored.
        ArtifactDamagedError: If the files of one are not what was written.
        PolicyError: If the checkpoint does not say which its base is.
    """
    return complete(
        store.local_folder("checkpoint", key), folder_of or (lambda base: store.local_folder("checkpoint", base))
    )


def complete(folder: str, folder_of: Callable[[str], str]) -> str:
    """The same of a checkpoint that lies in a folder already.

    Args:
        folder: Of the checkpoint.
        folder_of: Gives the folder of the base's key.
    """
    base_key = base_of(folder)
    if base_key is None:
        return folder
    files = sorted(Path(folder_of(base_key)).glob("model*.safetensors*"))
    files += sorted(path for path in Path(folder).iterdir() if path.is_file() and path.name != MANIFEST_NAME)
    return str(_linked({file.name: file.resolve() for file in files}))


def _linked(targets: dict[str, Path]) -> Path:
    """A folder of links, made once for the same targets; it may be deleted at any time."""
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
            (made / file).symlink_to(target)
        with contextlib.suppress(OSError):  # another process was first
            made.rename(folder)
    return folder
