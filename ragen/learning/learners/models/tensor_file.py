"""A safetensors file as a stream of bytes, to be written or only hashed.

tensors --serialised--> length of the header, header, tensor after tensor --> file, or SHA-256

The bytes are those of `safetensors.torch.save_file`. No tensor is copied unless it is on an accelerator or strided.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor

from starpo.schemas.manifest import FileEntry

_CODES = {
    torch.bool: "BOOL", torch.uint8: "U8", torch.int8: "I8", torch.int16: "I16", torch.float16: "F16",
    torch.bfloat16: "BF16", torch.int32: "I32", torch.float32: "F32", torch.float64: "F64", torch.int64: "I64",
}  # fmt: skip
"""Dtype -> its name in a header, in the format's own order: in a file, later ones come first."""
_ORDER = {dtype: place for place, dtype in enumerate(_CODES)}
_ALIGNMENT = 8
"""The header is filled with spaces to a multiple of as many bytes."""


def serialised(
    tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> Iterator[bytes | memoryview]:
    """Yield the bytes of a file that holds these tensors.

    Args:
        tensors: Name -> tensor, on any device.
        metadata: Text in the header, at most one item: the order of several is not defined.
    """
    names = sorted(tensors, key=lambda name: (-_ORDER[tensors[name].dtype], name))
    header: dict[str, object] = {"__metadata__": dict(metadata)} if metadata else {}
    end = 0
    for name in names:
        tensor, start = tensors[name], end
        end += tensor.nbytes
        header[name] = {"dtype": _CODES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    yield len(text).to_bytes(8, "little")
    yield text
    for name in names:
        yield tensors[name].detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data


def write_tensors(tensors: Mapping[str, Tensor], file: Path) -> None:
    """Write a file that holds these tensors."""
    with file.open("wb") as stream:
        for piece in serialised(tensors):
            stream.write(piece)


def entry_of_tensors(tensors: Mapping[str, Tensor], name: str) -> FileEntry:
    """Return the entry of the file of this name that `write_tensors` would write."""
    sha256, size_bytes = hashlib.sha256(), 0
    for piece in serialised(tensors):
        sha256.update(piece)
        size_bytes += len(piece)
    return FileEntry(name=name, path=name, sha256=sha256.hexdigest(), size_bytes=size_bytes)
