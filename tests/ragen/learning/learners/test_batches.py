"""Mini-batches and packing: every item exactly once, none split, within the budget."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from starpo.ragen.config.update import UpdateConfig
from starpo.ragen.learning.learners.data.batches import (
    micro_batches,
    num_steps,
    pack,
    split_minibatches,
)
from starpo.ragen.learning.learners.data.tokens import ResponseTokens


@given(st.integers(1, 50), st.integers(1, 60), st.integers(0, 2**62), st.integers(0, 3))
def test_split_partitions_trajectories_evenly(count, num_minibatches, seed, epoch):
    parts = split_minibatches(count, num_minibatches, seed, epoch)
    assert sorted(np.concatenate(parts).tolist()) == list(range(count))
    assert len(parts) == min(count, num_minibatches)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize(
    ("count", "steps"),
    [(128, 4), (96, 3), (32, 1), (5, 1), (1, 1), (47, 1), (48, 2), (80, 3), (126, 4), (130, 4)],  # 80 / 32 = 2.5: up
)
def test_num_steps_follows_minibatch_size(count, steps):
    assert num_steps(count, UpdateConfig(minibatch_trajectories=32, num_minibatches=9)) == steps
    assert num_steps(count, UpdateConfig(num_minibatches=9)) == 9


@given(st.integers(1, 300), st.integers(1, 60))
def test_num_steps_is_nearest_to_size(count, size):
    config = UpdateConfig(minibatch_trajectories=size)
    steps = num_steps(count, config)
    assert abs(count - steps * size) <= min(abs(count - other * size) for other in range(1, 302))
    parts = split_minibatches(count, steps, 0, 0)
    assert len(parts) == steps
    assert sum(map(len, parts)) == count


def test_split_depends_on_seed_and_epoch():
    def split(seed, epoch):
        return [part.tolist() for part in split_minibatches(40, 4, seed, epoch)]

    assert split(1, 0) == split(1, 0)
    assert split(1, 0) != split(2, 0)
    assert split(1, 0) != split(1, 1)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=40), st.integers(16, 100))
def test_pack_keeps_budget_and_all_sequences(lengths, budget):
    packs = pack(lengths, budget)
    assert sorted(np.concatenate(packs).tolist()) == list(range(len(lengths)))
    for chosen in packs:
        width = max(lengths[i] for i in chosen)
        assert len(chosen) * width <= budget or len(chosen) == 1


def test_pack_puts_like_lengths_together():
    # budget 20: 10 + 10, then 4 rows of at most 5 (5, 5, 2, 1)
    assert [p.tolist() for p in pack([2, 10, 5, 1, 10, 5], 20)] == [[1, 4], [2, 5, 0, 3]]


@pytest.mark.parametrize("context", ["window", "full"])
def test_shared_positions_are_predicted_once(make_trajectories, context):
    tokens = ResponseTokens(make_trajectories(8, context=context))
    segments = np.arange(len(tokens.segments))
    (batch,) = micro_batches(tokens, segments, token_budget=10_000, row_tokens=200)
    beginnings = [s.token_ids[:end].tobytes() for s in tokens.segments for end in np.flatnonzero(s.response_mask)]
    assert len(batch.predictor_P) == len(set(beginnings)) < len(beginnings)
    assert len(set(batch.predictor_P.tolist())) == len(batch.predictor_P)
    predicted = {}
    for beginning, index in zip(beginnings, batch.prediction_M[batch.token_M.argsort()].tolist(), strict=True):
        assert predicted.setdefault(beginning, index) == index


@given(
    count=st.integers(1, 12),
    num_ranks=st.integers(1, 5),
    budget=st.sampled_from([16, 40, 10_000]),
)
def test_ranks_partition_tokens_evenly(make_trajectories, count, num_ranks, budget):
    tokens = ResponseTokens(make_trajectories(count))
    segments = np.arange(len(tokens.segments))
    shares = [
        micro_batches(tokens, segments, budget, row_tokens=12, rank=rank, num_ranks=num_ranks)
        for rank in range(num_ranks)
    ]
    assert len({len(share) for share in shares}) == 1
    positions = np.concatenate([batch.token_M.numpy() for share in shares for batch in share])
    assert sorted(positions.tolist()) == list(range(len(tokens)))
