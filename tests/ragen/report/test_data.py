import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.errors import StoreError
from ragen.report.data import gather, sampled
from ragen.store import Store


@pytest.fixture(scope="module")
def data(stored_run: Store):
    return gather(stored_run, "hostile")


def unpacked(packed: bytes):
    return json.loads(gzip.decompress(packed))


def test_every_metric_of_every_stage_is_a_series(data) -> None:
    assert data.series["evaluation/sokoban/success"] == pytest.approx({0: 0.2, 1: 0.3, 2: 0.4, 3: 0.5})
    assert list(data.series["rollout/success_rate"]) == [0, 1, 2, 3]


def test_stage_seconds_are_those_of_the_manifests(data) -> None:
    assert data.stage_seconds["rollout"] == {0: 2.0, 1: 2.0, 2: 2.0, 3: 2.0}
    assert data.stage_seconds["evaluate:sokoban"][3] == 1.0


def test_decisions_of_all_groups_are_there_best_first(data) -> None:
    # four iterations of three groups; half of three groups kept is one or two
    assert [(d.iteration, d.rank) for d in data.decisions] == [(i, r) for i in range(4) for r in range(3)]
    assert {d.is_kept for d in data.decisions} == {True, False}
    assert all(d.reason for d in data.decisions)


def test_trajectories_are_whole_and_their_text_is_unchanged(data, stored_run: Store) -> None:
    keys = stored_run.runs.iterations("hostile")[2]["rollout"]
    stored = {(r["trajectory_id"], r["turn"]): r for r in stored_run.read_table("turns", keys["turns"]).to_pylist()}
    shown = {
        (member["id"], number): turn
        for group in unpacked(data.trajectories[2])
        for member in group["members"]
        for number, turn in enumerate(member["turns"])
    }
    assert shown.keys() == stored.keys()
    for place, turn in shown.items():
        row = stored[place]
        assert (turn["response"], turn["think"], turn["observation"]) == (
            row["response"],
            row["think"],
            row["observation"],
        )
        assert len(turn["frames"]) == len(row["executed_actions"]) + 1
        assert turn["total"] == pytest.approx(sum(turn["components"].values()))


def test_a_small_budget_embeds_the_last_iteration_alone_and_all_curves(stored_run: Store, data) -> None:
    small = gather(stored_run, "hostile", max_trajectory_bytes=1)
    assert list(small.trajectories) == [3]
    assert small.series == data.series
    assert small.decisions == data.decisions


def test_two_sampled_iterations_are_the_first_and_the_last(stored_run: Store) -> None:
    assert list(gather(stored_run, "hostile", max_sampled_iterations=2).trajectories) == [0, 3]


def test_a_run_that_has_only_begun_has_no_trajectories(tmp_path) -> None:
    store = Store(str(tmp_path))
    store.runs.create("new", flow="starpo", preset=None, config={"environment": {"type": "bandit"}})
    data = gather(store, "new")
    assert (data.trajectories, data.series, data.decisions, data.num_iterations) == ({}, {}, [], 0)
    assert data.state is None


def test_an_unknown_run_is_named(stored_run: Store) -> None:
    with pytest.raises(StoreError, match="there is no run 'absent'"):
        gather(stored_run, "absent")


def test_sampling_takes_ends_then_signals_then_the_middles_of_gaps() -> None:
    # 0..8: the last, the first, the signal at 3; the widest gap is 3..8, its middle 5; then 0..3 and 5..8 are as wide,
    # the earlier one first: its middle 1
    assert sampled(range(9), [3], 5) == [8, 0, 3, 5, 1]
    assert sampled(range(9), [3], 2) == [8, 0]
    assert sampled([], [3], 5) == []
    assert sampled([4], [], 5) == [4]


@given(st.sets(st.integers(0, 300), max_size=40), st.lists(st.integers(0, 300), max_size=5), st.integers(1, 50))
def test_a_sample_is_as_large_as_it_may_be_and_repeats_nothing(iterations, signalled, limit) -> None:
    chosen = sampled(sorted(iterations), signalled, limit)
    assert len(chosen) == len(set(chosen)) == min(limit, len(iterations))
    assert set(chosen) <= iterations
