"""The tokenizer of a run, from whichever of its checkpoints is there.

A checkpoint holds its policy's tokenizer; all checkpoints of a run have the same one. Weights are not read.
"""

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from starpo.ragen.core.errors import StarPOError
from starpo.ragen.store import Store
from starpo.ragen.store.records.runs import StageKeys

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

_TOKENIZER = "tokenizer.json"
_BESIDE = ("tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja")
"""Which of its tokens are special, and the template."""


def checkpoints_of(store: Store, iterations: Mapping[int, StageKeys]) -> Iterator[str]:
    """Keys of checkpoints with a run's tokenizer: its own, the first ones first, then those that played for it.

    Args:
        store: Where the run is.
        iterations: What it recorded.
    """
    recorded = [keys for stages in iterations.values() for keys in stages.values()]
    yield from dict.fromkeys(keys["checkpoint"] for keys in recorded if "checkpoint" in keys)
    for key in dict.fromkeys(keys["turns"] for keys in recorded if "turns" in keys):
        try:
            inputs = store.manifest("turns", key).inputs
        except StarPOError:  # missing or damaged: another rollout says the same
            continue
        if "checkpoint" in inputs:
            yield inputs["checkpoint"]


def find_tokenizer(store: Store, checkpoints: Iterable[str]) -> "PreTrainedTokenizerFast | None":
    """The tokenizer of the first of these checkpoints that can be read, as its file says it, whatever the architecture.

    Args:
        store: Where they are.
        checkpoints: Their keys.

    Returns:
        None: none of them can be read, or it has no `tokenizer.json` that is known here.
    """
    from transformers import PreTrainedTokenizerFast

    for key in checkpoints:
        with tempfile.TemporaryDirectory(prefix="ragen-tokenizer-") as folder:
            try:
                present = {entry.name for entry in store.manifest("checkpoint", key).files}
                for name in (_TOKENIZER, *(name for name in _BESIDE if name in present)):
                    Path(folder, name).write_bytes(store.read_file("checkpoint", key, name))
            except StarPOError:  # dropped, or damaged: the next one serves as well
                continue
            try:
                return PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
            except Exception:  # the tokenizers library raises bare `Exception` for a tokenizer it does not know
                return None
    return None
