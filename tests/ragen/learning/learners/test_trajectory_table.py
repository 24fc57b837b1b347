"""Trajectories survive a round trip through Arrow unchanged."""

import dataclasses

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from starpo.ragen.learning.examples import Example
from starpo.ragen.learning.learners.data.paid import PaidTrajectory, with_components
from starpo.ragen.learning.learners.data.trajectories import Trajectory
from starpo.ragen.learning.learners.deepspeed.trajectory_table import (
    pack_examples,
    pack_trajectories,
    unpack_examples,
    unpack_trajectories,
)
from tests.ragen.learning.learners.conftest import showing


def assert_same(one: Trajectory, other: Trajectory) -> None:
    for field in dataclasses.fields(Trajectory):
        if field.name not in ("segments", "turn_rewards", "states", "reasoning", "turn_weights"):
            assert getattr(one, field.name) == getattr(other, field.name)
    for name in ("turn_rewards", "states", "reasoning", "turn_weights"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        assert getattr(one, name).dtype == getattr(other, name).dtype
    assert len(one.segments) == len(other.segments)
    for segment, again in zip(one.segments, other.segments, strict=True):
        for name in ("token_ids", "response_mask", "behaviour_logprobs", "turn", "kind"):
            before, after = getattr(segment, name), getattr(again, name)
            assert before.dtype == after.dtype
            np.testing.assert_array_equal(before, after)


@given(
    turns=st.lists(st.integers(1, 3), max_size=5),
    silent=st.sets(st.integers(0, 4)),
    chosen=st.sets(st.integers(0, 4)),
    context=st.sampled_from(["window", "full"]),
)
def test_pack_and_unpack_round_trip(make_trajectories, turns, silent, chosen, context):
    """Covers several turns, several segments, no segments, and no trajectories."""
    trajectories = [make_trajectories(i + 1, context=context, num_turns=n)[i] for i, n in enumerate(turns)]
    trajectories = [dataclasses.replace(t, segments=()) if i in silent else t for i, t in enumerate(trajectories)]
    trajectories = [
        dataclasses.replace(t, turn_weights=t.turn_rewards / 3, greedy_return=0.5) if i in chosen else t
        for i, t in enumerate(trajectories)
    ]
    again = unpack_trajectories(pack_trajectories(trajectories))
    assert len(again) == len(trajectories)
    for one, other in zip(trajectories, again, strict=True):
        assert_same(one, other)


def test_what_a_teacher_says_survives(make_trajectories):
    columns = {"teacher_logprobs": np.float32([-1.5, -0.5]), "top_token_ids": np.int32([5, 7, 5, 9])}
    columns["top_logprobs"] = np.float32([-0.5, -1.5, -0.25, -2.5])
    again = unpack_trajectories(pack_trajectories([dataclasses.replace(t, **columns) for t in make_trajectories(2)]))
    for name, values in columns.items():
        assert all(getattr(t, name).dtype == values.dtype for t in again)
        assert [getattr(t, name).tolist() for t in again] == [values.tolist()] * 2


def test_components_survive_the_round_trip(make_trajectories):
    paid = [PaidTrajectory(**vars(t), component_returns={"a": 1.5, "b": n}) for n, t in enumerate(make_trajectories(2))]
    again = unpack_trajectories(pack_trajectories(paid))
    assert [t.component_returns for t in again] == [{"a": 1.5, "b": 0.0}, {"a": 1.5, "b": 1.0}]


def test_measured_lists_survive_round_trip(make_trajectories):
    taught = [
        dataclasses.replace(
            one,
            teacher_logprobs=-np.arange(one.num_response_tokens, dtype=np.float32),
            true_advantages=np.arange(len(one.turn_rewards)) / 3,
        )
        for one in make_trajectories(3)
    ]
    paid = [PaidTrajectory(**vars(one), component_returns={"a": 1.0}) for one in taught]
    for again in (unpack_trajectories(pack_trajectories(taught)), unpack_trajectories(pack_trajectories(paid))):
        for name in ("teacher_logprobs", "true_advantages"):
            assert [getattr(one, name).tolist() for one in again] == [getattr(one, name).tolist() for one in taught]


def test_components_are_summed_over_turns(make_trajectories):
    rows = {"trajectory_id": ["t1", "t0", "t1"], "component_names": [["a", "b"]] * 3}
    rewards = pa.table(rows | {"component_values": [[1.0, -0.5], [9.0, 0.0], [2.0, -0.5]]})
    returns = [trajectory.component_returns for trajectory in with_components(make_trajectories(2), rewards)]
    assert returns == [{"a": 9.0, "b": 0.0}, {"a": 3.0, "b": -1.0}]


def test_images_keep_their_ids(make_trajectories):
    trajectories = showing(make_trajectories(4))
    images = trajectories[0].images
    examples = [Example(one.token_ids, one.response_mask) for t in trajectories for one in t.segments]
    for unpacked in (
        unpack_trajectories(pack_trajectories(trajectories))[-1],
        unpack_examples(pack_examples(examples, images)),
    ):
        assert unpacked.images.images == images.images
        assert unpacked.images.num_tokens_of == images.num_tokens_of == [2, 2, 2]
    assert unpack_examples(pack_examples(examples)).images is None
