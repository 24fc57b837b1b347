"""Rows of Hugging Face's data sets: `hf:NAME:SPLIT`, `hf:NAME:CONFIG:SPLIT`, or `hf:FOLDER` as `save_to_disk` wrote."""

from pathlib import Path
from typing import Any

from starpo.ragen.core.errors import CallLimitError, EnvironmentFault
from starpo.ragen.core.faults import describe_fault
from starpo.ragen.core.guard import FOREIGN, Limit, guarded

PREFIX = "hf:"
"""Begins the name of a data set where a file could be named too."""


def data_set_rows(source: str, limit: Limit | None = None) -> list[dict[str, Any]]:
    """Load the rows of a data set.

    Args:
        source: Such as `hf:openai/gsm8k:main:test`.
        limit: How long loading may take; None for as long as it takes.

    Raises:
        EnvironmentFault: If the name has another form, the package `datasets` is missing, or it cannot load them.
    """
    parts = source.removeprefix(PREFIX).split(":")
    is_folder = len(parts) == 1 and Path(parts[0]).is_dir()
    if not is_folder and (len(parts) not in (2, 3) or not all(parts)):
        raise EnvironmentFault(
            f"{source}: expected hf:NAME:SPLIT or hf:NAME:CONFIG:SPLIT, as hf:openai/gsm8k:main:test, or hf:FOLDER"
        )
    try:
        import datasets
    except ImportError as error:
        raise EnvironmentFault(
            f"{source} needs the package datasets, which cannot be imported here ({error}): pip install datasets"
        ) from error
    try:
        with guarded(f"the data set {source}", limit):
            loaded = (
                datasets.load_from_disk(parts[0]) if is_folder else datasets.load_dataset(*parts[:-1], split=parts[-1])
            )
            if isinstance(getattr(loaded, "column_names", None), dict):
                raise EnvironmentFault(
                    f"{source} holds several splits ({', '.join(loaded)}): name the folder of one, such as "
                    f"{source}/{next(iter(loaded))}"
                )
            return [dict(row) for row in _with_files(loaded)]
    except (CallLimitError, EnvironmentFault):
        raise
    except FOREIGN as error:  # it speaks to a server, and has exceptions of its own
        raise EnvironmentFault(f"{source} cannot be loaded: {describe_fault(error, 'datasets')}") from error


def _with_files(loaded: Any) -> Any:
    """Have images given as the bytes of their files, not decoded."""
    for name, feature in (getattr(loaded, "features", None) or {}).items():
        if type(feature).__name__ == "Image":
            loaded = loaded.cast_column(name, type(feature)(decode=False))
    return loaded
