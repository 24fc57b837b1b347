"""Rows of Hugging Face's data sets: `hf:NAME:SPLIT`, `hf:NAME:CONFIG:SPLIT`.

NAME may be a folder of Parquet or JSON files, or one that `save_to_disk` wrote; alone if it has one split.
"""

import re
from pathlib import Path
from typing import Any

from starpo.ragen.core.errors import CallLimitError, EnvironmentFault
from starpo.ragen.core.faults import describe_fault
from starpo.ragen.core.guard import FOREIGN, Limit, guarded

PREFIX = "hf:"
"""Begins the name of a data set where a file could be named too."""
_SAVED = ("dataset_dict.json", "state.json")
"""Files of a folder that `save_to_disk` wrote, with several splits and with one."""


def plain_name(path: str) -> str:
    """Return what a panel may be called that holds the questions of a file or data set: letters, digits, ' ._-'.

    `sums.test.jsonl` is 'sums.test', `hf:openai/gsm8k:main:test` is 'gsm8k main test'.
    """
    is_file = not path.startswith(PREFIX)
    name = Path(path).stem if is_file else path.removeprefix(PREFIX).rstrip("/").rpartition("/")[2].replace(":", " ")
    return re.sub(r"[^A-Za-z0-9 ._-]+", "-", name).strip(" ._-")[:64] or "questions"


def data_set_rows(source: str, limit: Limit | None = None) -> list[dict[str, Any]]:
    """Load the rows of a data set.

    Args:
        source: Such as `hf:openai/gsm8k:main:test`.
        limit: How long loading may take; None for as long as it takes.

    Raises:
        EnvironmentFault: If the name has another form, the package `datasets` is missing, or it cannot load them.
    """
    name, *rest = source.removeprefix(PREFIX).split(":")
    is_saved = len(rest) < 2 and any((Path(name) / file).is_file() for file in _SAVED)
    if not is_saved and (len(rest) not in (1, 2) or not all((name, *rest))):
        if not rest and Path(name).is_dir():
            raise EnvironmentFault(
                f"{source} is a folder that save_to_disk did not write; of a folder of Parquet or JSON files name the "
                f"split, as {source}:train"
            )
        raise EnvironmentFault(
            f"{source}: expected hf:NAME:SPLIT or hf:NAME:CONFIG:SPLIT, as hf:openai/gsm8k:main:test, or hf:FOLDER as "
            "save_to_disk wrote it"
        )
    try:
        import datasets
    except ImportError as error:
        raise EnvironmentFault(
            f"{source} needs the package datasets, which cannot be imported here ({error}): pip install datasets"
        ) from error
    try:
        with guarded(f"the data set {source}", limit):
            if is_saved:
                loaded = _split_of(datasets.load_from_disk(name), name, *rest)
            else:
                loaded = datasets.load_dataset(name, *rest[:-1], split=rest[-1])
            return [dict(row) for row in _with_files(loaded)]
    except (CallLimitError, EnvironmentFault):
        raise
    except FOREIGN as error:  # it speaks to a server, and has exceptions of its own
        raise EnvironmentFault(f"{source} cannot be loaded: {describe_fault(error, 'datasets')}") from error


def _split_of(loaded: Any, name: str, split: str = "") -> Any:
    """Return a split of what a folder holds.

    Raises:
        EnvironmentFault: If it has no such split, or several and none is named.
    """
    if not isinstance(getattr(loaded, "column_names", None), dict):  # one split, which is not always named
        if split and split != str(loaded.split):
            raise EnvironmentFault(f"{PREFIX}{name} holds the split '{loaded.split}' alone: name {PREFIX}{name}")
        return loaded
    if split not in loaded:
        raise EnvironmentFault(
            f"{PREFIX}{name} holds the splits {', '.join(loaded)}: name one, as {PREFIX}{name}:{next(iter(loaded))}"
        )
    return loaded[split]


def _with_files(loaded: Any) -> Any:
    """Have images given as the bytes of their files, not decoded."""
    for name, feature in (getattr(loaded, "features", None) or {}).items():
        if type(feature).__name__ == "Image":
            loaded = loaded.cast_column(name, type(feature)(decode=False))
    return loaded
