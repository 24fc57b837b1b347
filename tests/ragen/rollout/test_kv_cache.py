"""The slot-aligned cache: the worked example of its module, and what carrying over must keep."""

import numpy as np
import pytest
import torch

from ragen.rollout.kv_cache import CacheShape, KVCache

SHAPE = CacheShape(num_layers=2, num_kv_heads=3, head_dim=4, dtype=torch.float32, device=torch.device("cpu"))


@pytest.fixture
def after_a_turn():
    """Two rows, prompts of 3 and 5 tokens in 5 slots, responses of 3 and 1 in 3; slot t of row b holds 10 b + t."""
    cache = KVCache(SHAPE, num_rows=2, capacity=9)
    assert cache.append_block(np.array([3, 5]), 5) == slice(0, 5)
    for slot in range(5, 8):
        assert cache.append_column() == slot
    cache.close_columns(5, np.array([3, 1]))
    cache.buffer[:] = (10.0 * torch.arange(2))[:, None, None, None] + torch.arange(9)[:, None]
    return cache


def held(cache, layer=1):
    """What each row's slots in use hold, in keys; values hold the same."""
    assert torch.equal(cache.keys(layer), cache.values(layer))
    return cache.keys(layer)[:, 2, :, 3].tolist()


def test_bias_masks_gaps_and_leaves_free_slots_open(after_a_turn):
    gaps = np.isneginf(after_a_turn.bias().numpy())
    assert np.flatnonzero(gaps[0]).tolist() == [3, 4]
    assert np.flatnonzero(gaps[1]).tolist() == [6, 7]
    assert not np.isnan(after_a_turn.bias().numpy()).any()


def test_carrying_over_squeezes_the_gaps_out(after_a_turn):
    carried = after_a_turn.carried_over(np.array([1, -1, 0]), num_free=2)
    assert (carried.num_slots, carried.capacity) == (6, 8)
    rows = held(carried)
    assert rows[0] == [10, 11, 12, 13, 14, 15]
    assert rows[2] == [0, 1, 2, 5, 6, 7]
    assert np.isneginf(carried.bias()[:, :6].numpy()).sum(1).tolist() == [0, 6, 0]  # the empty row sees nothing


def test_carrying_over_nothing_gives_an_empty_cache(after_a_turn):
    carried = after_a_turn.carried_over(np.array([-1, -1]), num_free=4)
    assert (carried.num_slots, carried.capacity, carried.num_rows) == (0, 4, 2)


def test_expanding_repeats_rows_with_their_gaps(after_a_turn):
    expanded = after_a_turn.expanded(np.array([1, 0, 1]), num_free=3)
    assert (expanded.num_rows, expanded.num_slots, expanded.capacity) == (3, 8, 11)
    assert held(expanded)[0] == held(expanded)[2] == list(range(10, 18))
    assert np.isneginf(expanded.bias().numpy()).sum(1).tolist() == [2, 2, 2]


def test_swapped_rows_take_their_gaps_along(after_a_turn):
    after_a_turn.swap_rows(np.array([0]), np.array([1]))
    assert held(after_a_turn)[0] == list(range(10, 18))
    carried = after_a_turn.carried_over(np.array([1]), num_free=0)
    assert held(carried)[0] == [0, 1, 2, 5, 6, 7]


def test_views_of_the_first_rows_share_memory(after_a_turn):
    assert after_a_turn.keys(0, 1).data_ptr() == after_a_turn.buffer.data_ptr()
    assert after_a_turn.keys(0, 1).shape == (1, 3, 8, 4)
