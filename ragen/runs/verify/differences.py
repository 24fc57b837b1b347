"""First difference between two datasets or two folders of files."""

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from starpo.ragen.core.visible import quoted

if TYPE_CHECKING:
    from torch import Tensor

RELATIVE_ROUNDING = 1e-9
"""Tolerance for the same arithmetic in other library versions; numbers are of the order of 1, so near zero the
tolerance is absolute."""


def table_difference(stored: pa.Table, computed: pa.Table, key: tuple[str, ...]) -> str:
    """Describe how a stored dataset and a recomputed one differ.

    Args:
        stored: The dataset as read from the store.
        computed: The recomputed dataset, of the same schema.
        key: Columns that identify a row.

    Returns:
        The rows and columns that differ, and both values at the first difference; empty if they are bitwise equal.
    """
    if stored.column_names != computed.column_names:
        return f"columns are {', '.join(stored.column_names)}; computed: {', '.join(computed.column_names)}"
    num_common = min(stored.num_rows, computed.num_rows)
    differing = {
        name: rows
        for name in stored.column_names
        if (rows := _differing_rows(stored[name][:num_common], computed[name][:num_common]))
    }
    counts = f"{stored.num_rows} rows, computed {computed.num_rows}" if stored.num_rows != computed.num_rows else ""
    if not differing:
        return counts
    first = min(rows[0] for rows in differing.values())
    column = next(name for name, rows in differing.items() if rows[0] == first)
    identity = ", ".join(f"{name} {quoted(stored[name][first].as_py())}" for name in key)
    num_rows = len(set().union(*differing.values()))
    return "; ".join(
        part
        for part in (
            counts,
            f"{num_rows} of {num_common} rows differ, first row {first} ({identity}): {column} is "
            f"{quoted(stored[column][first].as_py())}, computed {quoted(computed[column][first].as_py())}",
            f"columns that differ: {', '.join(differing)}",
        )
        if part
    )


def is_rounding(stored: pa.Table, computed: pa.Table) -> bool:
    """Whether two datasets of the same schema differ at most in the last digits of floating-point numbers."""
    if stored.num_rows != computed.num_rows or stored.column_names != computed.column_names:
        return False
    pairs = zip(stored.to_pylist(), computed.to_pylist(), strict=True)
    return all(is_close(old[name], new[name]) for old, new in pairs for name in stored.column_names)


def is_close(stored: object, computed: object) -> bool:
    """Whether two values are equal, floating-point numbers up to a tolerance of 1e-9."""
    if isinstance(stored, float) and isinstance(computed, float):
        return math.isclose(stored, computed, rel_tol=RELATIVE_ROUNDING, abs_tol=RELATIVE_ROUNDING) or repr(
            stored
        ) == repr(computed)
    if isinstance(stored, list) and isinstance(computed, list):
        return len(stored) == len(computed) and all(map(is_close, stored, computed))
    return stored == computed


def folder_difference(stored: Path, computed: Path) -> str:
    """Describe how two folders differ: file names, then bytes; for tensors also how many values and by how much.

    Returns:
        Empty if they are the same. A `manifest.json` is not part of a folder's content.
    """
    names, computed_names = _file_names(stored), _file_names(computed)
    if names != computed_names:
        odd = sorted(names ^ computed_names)
        where = "stored" if odd[0] in names else "computed"
        return f"the file {quoted(odd[0])} is in the {where} folder only"
    differing = [name for name in sorted(names) if (stored / name).read_bytes() != (computed / name).read_bytes()]
    if not differing:
        return ""
    tensors = [name for name in differing if name.endswith(".safetensors")]
    detail = "".join(f"; {name}: {_tensor_difference(stored / name, computed / name)}" for name in tensors)
    return f"files that differ: {', '.join(map(quoted, differing))}{detail}"


def _differing_rows(stored: pa.ChunkedArray, computed: pa.ChunkedArray) -> list[int]:
    """Return the rows whose values differ; NaN equals NaN, and -0.0 differs from 0.0."""
    if not _has_reals(stored.type) and stored.equals(computed):
        return []
    pairs = zip(stored.to_pylist(), computed.to_pylist(), strict=True)
    return [row for row, (old, new) in enumerate(pairs) if repr(old) != repr(new)]


def _has_reals(type_: pa.DataType) -> bool:
    return pa.types.is_floating(type_.value_type if pa.types.is_list(type_) else type_)


def _file_names(folder: Path) -> set[str]:
    names = {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}
    return names - {"manifest.json"}


def _tensor_difference(stored: Path, computed: Path) -> str:
    from safetensors.torch import load_file

    old, new = load_file(stored), load_file(computed)
    if old.keys() != new.keys():
        return f"the tensor {quoted(min(old.keys() ^ new.keys()))} is in only one of the two"
    for name in sorted(old):
        was, computed_as = (f"{str(of[name].dtype).removeprefix('torch.')} {list(of[name].shape)}" for of in (old, new))
        if was != computed_as:
            return f"{name} is {was}, computed {computed_as}"
    differing = [name for name in sorted(old) if _changed(old[name], new[name]).any()]
    if not differing:
        return "all tensors are equal, the bytes around them differ"
    name = differing[0]
    gaps = np.abs((old[name].double() - new[name].double()).numpy())[_changed(old[name], new[name])]
    return (
        f"{len(differing)} of {len(old)} tensors, first {name}: {gaps.size} of {old[name].numel()} values, "
        f"by at most {gaps.max():.3g}"
    )


def _changed(old: "Tensor", new: "Tensor") -> np.ndarray:
    """Return whether each value's bits differ: NaN equals NaN, and -0.0 differs from 0.0."""
    import torch

    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[old.element_size()]
    return (old.view(bits) != new.view(bits)).numpy()
