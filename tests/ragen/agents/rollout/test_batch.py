"""Mapping of sequences to rows: by hand, and against a model of the batch that copies whole histories."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from starpo.ragen.agents.rollout.torch.batch import CacheBatch
from starpo.ragen.agents.rollout.torch.kv_cache import CacheShape, KVCache

SHAPE = CacheShape(num_layers=1, num_kv_heads=1, head_dim=1, dtype=torch.float32, device=torch.device("cpu"))


def test_sequences_part_where_they_draw_differently():
    cache = KVCache(SHAPE, num_rows=3, capacity=4)
    batch = CacheBatch(cache, np.array([0, 0, 1]), num_rows=2, keeps_ended=True)
    going = np.zeros(3, dtype=bool)
    tokens, sequences = batch.advance(np.array([7, 7, 7]), going)
    assert (tokens.tolist(), sequences.tolist()) == ([7, 7], [1, 2])  # the first two still share a row
    tokens, _ = batch.advance(np.array([6, 5, 7]), going)
    assert tokens[batch.rows_B].tolist() == [6, 5, 7]
    assert batch.num_rows == 3
    batch.advance(np.array([1, 1, 1]), np.array([True, False, False]))
    assert (batch.num_rows, batch.going.tolist()) == (2, [1, 2])


@settings(deadline=None)
@given(st.integers(1, 12), st.integers(1, 4), st.integers(0, 2**32 - 1), st.booleans())
def test_row_holds_what_sequences_read(num_sequences, num_prompts, seed, keeps_ended):
    rng = np.random.default_rng(seed)
    num_prompts = min(num_prompts, num_sequences)
    prompts = np.concatenate([np.arange(num_prompts), rng.integers(num_prompts, size=num_sequences - num_prompts)])
    cache = KVCache(SHAPE, num_sequences, capacity=11)
    slots = cache.append_block(np.ones(num_prompts, dtype=np.int64), 1)
    cache.buffer[..., :num_prompts, :, slots, 0] = torch.arange(num_prompts).float()[:, None, None]
    batch = CacheBatch(cache, prompts.copy(), num_prompts, keeps_ended)
    read = [[prompt] for prompt in prompts.tolist()]
    for _ in range(10):
        drawn = rng.integers(3, size=len(batch.going))
        has_ended = rng.random(len(batch.going)) < 0.15
        if has_ended.all():
            break
        tokens, sequences = batch.advance(drawn, has_ended)
        slot = cache.append_column()
        cache.buffer[:, :, : batch.num_rows, :, slot, 0] = torch.from_numpy(tokens).float()[:, None]
        for sequence, token in zip(batch.going.tolist(), drawn[~has_ended].tolist(), strict=True):
            read[sequence].append(token)
        assert (batch.rows_B[batch.going] < batch.num_rows).all()
        assert len(sequences) == len(tokens) == batch.num_rows
        for sequence in range(num_sequences) if keeps_ended else batch.going.tolist():
            held = cache.in_use(num_sequences)[0, 0, batch.rows_B[sequence], 0, : len(read[sequence]), 0]
            assert held.tolist() == read[sequence]
