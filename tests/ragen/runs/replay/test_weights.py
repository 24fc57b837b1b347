from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from starpo.ragen.runs.replay.weights import weight_changes


def checkpoint(folder: Path, **tensors: list[float]) -> str:
    """Write a checkpoint of two files, like a sharded model, and an optimiser state, which is not a weight."""
    folder.mkdir()
    names = sorted(tensors)
    for number, part in enumerate((names[:1], names[1:])):
        save_file({name: torch.tensor(tensors[name]) for name in part}, folder / f"model-{number}.safetensors")
    save_file({"a": torch.zeros(9)}, folder / "optimiser.safetensors")
    return str(folder)


def test_changes_of_every_parameter_by_name(tmp_path: Path) -> None:
    base = checkpoint(tmp_path / "0", a=[1.0, 2.0], b=[3.0]), checkpoint(tmp_path / "1", a=[1.5, 2.0], b=[2.0])
    branch = base[0], checkpoint(tmp_path / "2", a=[1.0, 1.0], b=[4.0])
    changes = list(weight_changes(base, branch))
    assert np.concatenate([of_base for of_base, _ in changes]).tolist() == [0.5, 0.0, -1.0]
    assert np.concatenate([of_branch for _, of_branch in changes]).tolist() == [0.0, -1.0, 1.0]


def test_tied_weight_counts_once(tmp_path: Path) -> None:
    first = checkpoint(tmp_path / "0", a=[1.0], b=[0.0], tied=[1.0])
    later = checkpoint(tmp_path / "1", a=[2.0], b=[0.0])
    assert [change.tolist() for change, _ in weight_changes((first, later), (first, later))] == [[1.0], [0.0]]
