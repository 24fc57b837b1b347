"""What updates did to a policy's weights, from stored checkpoints: read tensor by tensor, so that memory holds one.

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
    """The changes (after - before) of base and branch, a tensor at a time.

    Args:
        base: Folders of the checkpoints before and after the base's update.
        branch: And of the branch's.

    Yields:
        float32 arrays of one parameter, over all parameters of the policy that the four checkpoints hold under one
        name; a checkpoint may also name a tied weight twice, and that is counted once.
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
    """Parameter -> the open file that holds it."""
    files = [stack.enter_context(safe_open(path, "pt")) for path in sorted(Path(folder).glob("model*.safetensors"))]
    return {name: file for file in files for name in file.keys()}  # noqa: SIM118 (a file is no mapping)
