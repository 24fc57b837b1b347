"""Weight changes of updates, from stored checkpoints, read one tensor at a time to bound memory.

before/model*.safetensors, after/model*.safetensors -> changes of base and branch, tensor by tensor
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open

from starpo.ragen.agents.policy.adapter import Adapter, read_adapter


def weight_changes(base: tuple[str, str], branch: tuple[str, str]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Compute the weight changes (after - before) of base and branch, one tensor at a time.

    Args:
        base: Folders of the checkpoints before and after the base's update.
        branch: Folders of the checkpoints before and after the branch's update.

    Yields:
        float32 arrays (base, branch) of one parameter, for all parameters whose name is in all four checkpoints. A
        second name of a tied weight, which only some checkpoints have, is thus not counted.
    """
    with ExitStack() as stack:
        sides = [(_tensors(folder, stack), read_adapter(folder)) for folder in (*base, *branch)]
        for name in sorted(set.intersection(*(set(tensors) for tensors, _ in sides))):
            before, after, other_before, other_after = (
                _merged(name, tensors[name].get_tensor(name).to(torch.float32), adapter) for tensors, adapter in sides
            )
            yield (after - before).numpy(), (other_after - other_before).numpy()


def _merged(name: str, weight: torch.Tensor, adapter: Adapter | None) -> torch.Tensor:
    return weight if adapter is None else adapter.merged(name, weight)


def _tensors(folder: str, stack: ExitStack) -> dict[str, Any]:
    """Return parameter -> the open file that holds it."""
    files = [stack.enter_context(safe_open(path, "pt")) for path in sorted(Path(folder).glob("model*.safetensors"))]
    return {name: file for file in files for name in file.keys()}  # noqa: SIM118 (a file is no mapping)
