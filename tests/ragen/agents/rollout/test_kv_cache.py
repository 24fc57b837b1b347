"""The slot-aligned cache: the example in its module's docstring, and what carrying over must preserve."""

import numpy as np
import pytest
import torch

from starpo.ragen.agents.rollout.kv_cache import CacheShape, KVCache

SHAPE = CacheShape(num_layers=2, num_kv_heads=3, head_dim=4, dtype=torch.float32, device=torch.device("cpu"))


@pytest.fixture
def after_a_turn():
    """Rows 0 and 1 as in the module's example, row 2 free; slot t of row b holds 10 b + t."""
    cache = KVCache(SHAPE, num_rows=3, capacity=9)
    assert cache.append_block(np.array([3, 5]), 5) == slice(0, 5)
    assert [cache.append_column() for _ in range(3)] == [5, 6, 7]
    cache.buffer[:] = (10.0 * torch.arange(3))[:, None, None, None] + torch.arange(9)[:, None]
    return cache


def held(cache, layer=1):
    """Return the keys in each row's used slots; the values are the same."""
    keys, values = cache.in_use(cache.num_rows)[layer]
    assert torch.equal(keys, values)
    return keys[:, 2, :, 3].tolist()


def gaps(cache):
    assert not torch.isnan(cache.bias_BT).any()
    return [np.flatnonzero(row).tolist() for row in np.isneginf(cache.bias_BT.numpy())]


def test_bias_masks_gaps_and_leaves_columns_and_free_slots_open(after_a_turn):
    assert gaps(after_a_turn) == [[3, 4], [], [0, 1, 2, 3, 4]]


def test_carrying_over_squeezes_the_gaps_out(after_a_turn):
    carried = after_a_turn.carried_over(np.array([1, 0, 0]), np.array([6, 0, 6]), num_rows=3, num_free=2)
    assert (carried.num_rows, carried.num_slots, carried.capacity) == (3, 6, 8)
    rows = held(carried)
    assert rows[0] == [10, 11, 12, 13, 14, 15]
    assert rows[2] == [0, 1, 2, 5, 6, 7]
    assert gaps(carried) == [[], [0, 1, 2, 3, 4, 5], []]  # the row that starts empty attends to nothing


def test_sequences_of_one_row_are_carried_over_to_their_own_ends(after_a_turn):
    carried = after_a_turn.carried_over(np.array([0, 0]), np.array([4, 2]), num_rows=2, num_free=0)
    assert held(carried)[0] == [0, 1, 2, 5]
    assert held(carried)[1][:2] == [0, 1]
    assert gaps(carried) == [[], [2, 3]]


def test_carrying_over_nothing_gives_an_empty_cache(after_a_turn):
    carried = after_a_turn.carried_over(np.array([0, 0]), np.array([0, 0]), num_rows=2, num_free=4)
    assert (carried.num_slots, carried.capacity, carried.num_rows) == (0, 4, 2)


def test_copied_rows_take_their_gaps_along(after_a_turn):
    after_a_turn.copy_rows(np.array([0]), np.array([2]))
    assert held(after_a_turn)[2] == held(after_a_turn)[0]
    assert gaps(after_a_turn)[2] == [3, 4]
    carried = after_a_turn.carried_over(np.array([2]), np.array([6]), num_rows=1, num_free=0)
    assert held(carried)[0] == [0, 1, 2, 5, 6, 7]


@pytest.mark.parametrize("cycle", [[1, 0, 2], [1, 2, 0], [2, 0, 1]])
def test_all_rows_are_read_before_any_is_written(after_a_turn, cycle):
    before, gaps_before = held(after_a_turn), gaps(after_a_turn)
    after_a_turn.copy_rows(np.array([0, 1, 2]), np.array(cycle))
    assert [held(after_a_turn)[target] for target in cycle] == before
    assert [gaps(after_a_turn)[target] for target in cycle] == gaps_before


def test_views_of_the_first_rows_share_memory(after_a_turn):
    assert after_a_turn.in_use(1).data_ptr() == after_a_turn.buffer.data_ptr()
    assert after_a_turn.in_use(1).shape == (2, 2, 1, 3, 8, 4)
