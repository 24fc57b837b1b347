import gzip
import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starpo.ragen.evidence.report.embedding import TrajectoryBatch, embed, sampled


def test_sampling_takes_ends_then_gap_middles() -> None:
    # 0..8: the last, the first, the preferred 3; the widest gap is 3..8, its middle 5; then 0..3 and 5..8 are
    # equally wide; the earlier one comes first, its middle 1
    assert sampled(range(9), [3], 5) == [8, 0, 3, 5, 1]
    assert sampled(range(9), [3], 2) == [8, 0]
    assert sampled([], [3], 5) == []
    assert sampled([4], [], 5) == [4]


@given(st.sets(st.integers(0, 300), max_size=40), st.lists(st.integers(0, 300), max_size=5), st.integers(1, 50))
def test_sample_fills_limit_without_repeats(iterations, preferred, limit) -> None:
    chosen = sampled(sorted(iterations), preferred, limit)
    assert len(chosen) == len(set(chosen)) == min(limit, len(iterations))
    assert set(chosen) <= iterations


def batch(iteration: int, num_groups: int = 4) -> TrajectoryBatch:
    noise = random.Random(iteration)  # hardly compressible
    groups = [
        {
            "id": f"g{g}",
            "members": [{"drawn": g > 0, "turns": [], "text": noise.randbytes(500).hex()} for _ in range(2)],
        }
        for g in range(num_groups)
    ]
    return TrajectoryBatch(iteration, None, groups, 2 * num_groups)


def test_batches_taken_until_one_overflows() -> None:
    size = len(embed([batch(0)], 10**9)[0].packed)
    taken = embed(iter([batch(5), batch(0), batch(3)]), 2 * size + 500)
    assert [e.iteration for e in taken] == [5, 0]
    assert sum(len(e.packed) for e in taken) <= 2 * size + 500
    assert (taken[0].num_trajectories, taken[0].num_all, taken[0].num_not_drawn) == (8, 8, 2)


def test_large_first_batch_is_truncated() -> None:
    whole = embed([batch(0, 16)], 10**9)[0]
    (part,) = embed([batch(0, 16)], len(whole.packed) // 2)
    assert len(part.packed) <= len(whole.packed) // 2
    assert 0 < part.num_trajectories < part.num_all == 32
    groups = json.loads(gzip.decompress(part.packed))["groups"]
    assert [g["id"] for g in groups] == [f"g{n}" for n in range(len(groups))]


@pytest.mark.ci
def test_groups_made_only_if_fitting() -> None:
    made: list[str] = []

    def counted(of: TrajectoryBatch) -> TrajectoryBatch:
        groups = (made.append(group["id"]) or group for group in of.groups)
        return TrajectoryBatch(of.iteration, None, groups, of.num_trajectories)

    room = len(embed([batch(0, 16)], 10**9)[0].packed)
    (part,) = embed([counted(batch(0, 640))], room)
    assert len(part.packed) <= room
    assert part.num_all == 1280
    assert len(made) < 64
    made.clear()
    assert [e.iteration for e in embed([batch(1), counted(batch(0, 640))], room)] == [1]
    assert len(made) < 64


def test_wanted_batch_present_at_any_size() -> None:
    taken = embed([batch(7), batch(3), batch(9), batch(0)], 1, wanted=[3, 7])
    assert [(e.iteration, e.num_trajectories) for e in taken] == [(7, 8), (3, 8)]
