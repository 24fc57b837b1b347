"""Own bytes of a safetensors file, against the library's."""

from pathlib import Path

import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save, save_file

from starpo.ragen.learning.learners.models.tensor_file import _CODES, entry_of_tensors, serialised, write_tensors
from starpo.schemas.manifest import FileEntry

SHAPES = st.lists(st.integers(0, 4), max_size=3)


@given(
    st.dictionaries(st.text(max_size=12), st.tuples(st.sampled_from(list(_CODES)), SHAPES), max_size=8),
    st.sampled_from([None, {"format": "pt"}]),
)
def test_they_are_the_librarys(described: dict, metadata: dict | None) -> None:
    tensors = {
        name: torch.arange(torch.Size(shape).numel()).reshape(shape).to(dtype)
        for name, (dtype, shape) in described.items()
        if name != "__metadata__"
    }
    assert b"".join(map(bytes, serialised(tensors, metadata))) == save(tensors, metadata)


def test_hashed_entry_equals_written_entry(tmp_path: Path) -> None:
    matrix = torch.randn(5, 3, requires_grad=True)
    tensors = {"b": matrix.t(), "a": matrix[1], "step": torch.tensor(3.0)}
    write_tensors(tensors, tmp_path / "own.safetensors")
    save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, tmp_path / "own")
    assert (tmp_path / "own").read_bytes() == (tmp_path / "own.safetensors").read_bytes()
    entry = entry_of_tensors(tensors, "own.safetensors")
    assert entry == FileEntry.of(tmp_path / "own.safetensors", "own.safetensors")
