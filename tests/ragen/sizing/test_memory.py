"""Memory formulas compared with what torch saves, and with the numbers of the papers."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from starpo.ragen.learning.learners.models import scoring
from starpo.ragen.sizing.architecture import Architecture
from starpo.ragen.sizing.memory import (
    LOGITS_AT_A_TIME,
    activation_bytes,
    attention_bytes,
    logits_part,
    optimiser_bytes,
    zero_bytes,
)
from tests.ragen.sizing.models import model_of

SMALL = Architecture(64, 3, 4, 2, 16, 160, 128, is_tied=True)


def kept_bytes(architecture: Architecture, num_tokens: int, dtype: str, *, is_masked: bool = False) -> int:
    """Bytes that a forward pass saves for its backward pass, without parameters; each storage counts once."""
    model = model_of(architecture).eval()
    parameters = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.untyped_storage().data_ptr() not in parameters:
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    ids = torch.arange(num_tokens)[None] % architecture.vocab_size
    sees = torch.ones(1, 1, num_tokens, num_tokens, dtype=torch.bool).tril() if is_masked else None
    with (
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
        torch.autocast("cpu", dtype=getattr(torch, dtype), enabled=dtype != "float32", cache_enabled=False),
    ):
        model.model(input_ids=ids, attention_mask=sees, use_cache=False)
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("num_tokens", [96, 256])
def test_activations_are_what_torch_keeps(dtype: str, num_tokens: int) -> None:
    """Within 3 percent; the rest is positions, rotary embeddings and token ids."""
    assert kept_bytes(SMALL, num_tokens, dtype) == pytest.approx(activation_bytes(SMALL, num_tokens, dtype), rel=0.03)


@pytest.mark.parametrize(("stage", "gigabytes"), [(1, 31.4), (2, 16.6), (3, 1.88)])
def test_zero_bytes_match_paper_figure_1(stage: int, gigabytes: float) -> None:
    """7.5 billion parameters on 64 GPUs."""
    sizes = zero_bytes(7_500_000_000, stage, 64)
    assert sum(sizes.values()) / 1e9 == pytest.approx(gigabytes, abs=0.05)


def test_offloaded_states_use_host_memory() -> None:
    sizes = zero_bytes(1000, 2, 4, is_offloaded=True)
    assert sizes == {"weights": 2000, "gradients": 500, "optimiser": 0, "host": 3000}


def test_logits_of_a_micro_batch() -> None:
    assert logits_part(SMALL, 10, has_entropy=False).size_bytes == 16 * 10 * 128
    assert logits_part(SMALL, 10, has_entropy=True).size_bytes == 20 * 10 * 128
    assert LOGITS_AT_A_TIME == scoring._LOGITS_AT_A_TIME


def test_logits_are_limited_by_chunk_size() -> None:
    large = 2 * LOGITS_AT_A_TIME // 128
    assert logits_part(SMALL, large, has_entropy=True).size_bytes == 20 * LOGITS_AT_A_TIME
    assert logits_part(SMALL, large, has_entropy=True, is_cut_up=True).size_bytes == 20 * 2 * LOGITS_AT_A_TIME


def test_muon_keeps_one_momentum_of_matrices() -> None:
    matrices, rest = SMALL.num_matrix_parameters, SMALL.num_parameters - SMALL.num_matrix_parameters
    assert optimiser_bytes(SMALL, SMALL.num_parameters, "muon") == 4 * matrices + 8 * rest
    assert optimiser_bytes(SMALL, SMALL.num_parameters, "adamw") == 8 * SMALL.num_parameters


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_shared_prefix_rows_keep_masks(dtype: str) -> None:
    """Beside what is kept without a mask; exact."""
    plain, masked = kept_bytes(SMALL, 96, dtype), kept_bytes(SMALL, 96, dtype, is_masked=True)
    assert masked - plain == attention_bytes(SMALL, 96, 96, dtype)
    once = attention_bytes(SMALL, 96, 96, dtype, is_recomputed=True)
    assert attention_bytes(SMALL, 96, 96, dtype) == SMALL.num_layers * once


def test_unfused_attention_keeps_scores() -> None:
    """The kernel that a GPU takes in float32, on the CPU; exact."""
    plain = kept_bytes(SMALL, 96, "float32")
    with sdpa_kernel(SDPBackend.MATH):
        assert kept_bytes(SMALL, 96, "float32") - plain == attention_bytes(SMALL, 96, 96, "float32", is_fused=False)
