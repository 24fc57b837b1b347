"""The policy of a stored checkpoint: its complete folder, and the tokenizer that all checkpoints of a run share."""

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from starpo.ragen.agents.policy.folder import declared_end_ids, read_config
from starpo.ragen.core.errors import StarPOError
from starpo.ragen.store import Store
from starpo.ragen.store.records.runs import StageKeys

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from starpo.ragen.agents.vision.image_tokens import ImageTokens

_TOKENIZER = "tokenizer.json"
_BESIDE = (
    "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja", "generation_config.json", "config.json",
)  # fmt: skip
"""Files with the special tokens, the chat template and the end tokens."""


def complete_folder(store: Store, key: str, folder_of: Callable[[str], str] | None = None) -> str:
    """Return a local folder with a stored checkpoint's files and, if they are adapters, the weights of their base.

    Args:
        store: The store that has both.
        key: Key of the checkpoint.
        folder_of: Returns the folder for the base's key. None: from the store, which must still have it.

    Raises:
        ArtifactMissingError: If the checkpoint or its base is not stored.
        ArtifactDamagedError: If the files of one are not what was written.
        PolicyError: If the checkpoint's record of its base is damaged.
    """
    from starpo.ragen.agents.policy.complete import complete

    stored = partial(store.local_folder, "checkpoint")
    return complete(stored(key), folder_of or stored)


def checkpoints_of(store: Store, iterations: Mapping[int, StageKeys]) -> Iterator[str]:
    """Yield keys of checkpoints with a run's tokenizer: its own, earliest first, then those that generated its turns.

    Args:
        store: The store that has the run.
        iterations: The run's records.
    """
    recorded = [keys for stages in iterations.values() for keys in stages.values()]
    yield from dict.fromkeys(keys["checkpoint"] for keys in recorded if "checkpoint" in keys)
    for key in dict.fromkeys(keys["turns"] for keys in recorded if "turns" in keys):
        try:
            inputs = store.manifest("turns", key).inputs
        except StarPOError:  # missing or damaged: other rollouts have the same tokenizer
            continue
        if "checkpoint" in inputs:
            yield inputs["checkpoint"]


def find_tokenizer(store: Store, checkpoints: Iterable[str]) -> "PreTrainedTokenizerFast | None":
    """Load the tokenizer of the first readable checkpoint, exactly as its file defines it, whatever the architecture.

    Weights are not read.

    Args:
        store: The store that has the checkpoints.
        checkpoints: Their keys.

    Returns:
        None if none has a readable `tokenizer.json`, or if the first that does is not supported here.
    """
    from transformers import PreTrainedTokenizerFast

    for key in checkpoints:
        with tempfile.TemporaryDirectory(prefix="ragen-tokenizer-") as folder:
            try:
                present = {entry.name for entry in store.manifest("checkpoint", key).files}
                for name in (_TOKENIZER, *(name for name in _BESIDE if name in present)):
                    Path(folder, name).write_bytes(store.read_file("checkpoint", key, name))
            except StarPOError:  # dropped or damaged: try the next one
                continue
            try:
                tokenizer = PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
                tokenizer.declared_end_ids = declared_end_ids(folder)
                has_config = Path(folder, "config.json").is_file()
                tokenizer.image_tokens = _image_tokens(Path(folder), tokenizer) if has_config else None
                return tokenizer
            except Exception:  # the tokenizers library raises bare `Exception` for an unsupported tokenizer
                return None
    return None


def _image_tokens(folder: Path, tokenizer: "PreTrainedTokenizerFast") -> "ImageTokens | None":
    """Return the tokens around an image; None if the policy sees none, in which case torch is not imported."""
    from starpo.ragen.agents.vision.image_tokens import MODEL_TYPE

    config = read_config(folder)
    if "vision_config" not in config and config.get("model_type") != MODEL_TYPE:
        return None
    from starpo.ragen.agents.vision.families import image_tokens_of

    return image_tokens_of(folder, tokenizer)
