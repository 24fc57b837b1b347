"""The initial states of a policy's training, as its folder records them."""

import json
from collections.abc import Iterable
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from starpo.ragen.core.errors import PolicyError

FILE = "initial_states.json"
"""Digests of initial states, sorted. In the folder of a first checkpoint: those of the demonstrations, or of the
policy's earlier training; in an exported folder: those of all of its training."""

_STATES = TypeAdapter(list[str])


def write_states(folder: str | Path, digests: Iterable[str]) -> None:
    """Record in a policy's folder the initial states of its training."""
    (Path(folder) / FILE).write_text(json.dumps(sorted(set(digests))), encoding="utf-8")


def read_states(folder: str | Path) -> list[str]:
    """Return the digests recorded in a policy's folder; empty without a record.

    Raises:
        PolicyError: If the record cannot be read.
    """
    path = Path(folder) / FILE
    if not path.is_file():
        return []
    try:
        return _STATES.validate_json(path.read_bytes())
    except ValidationError as error:
        raise PolicyError(
            f"'{path}' is damaged ({error.errors()[0]['msg']}); expected a list of digests of initial states. Export "
            "the policy again, or delete the file: prompts in which its training began then count as unseen"
        ) from error
