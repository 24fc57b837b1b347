"""From stored turns to trajectories: token in, token out."""

import numpy as np
import pyarrow as pa
import pytest

from starpo.ragen.core.errors import LearnerError
from starpo.ragen.learning.learners.data.tokens import ResponseTokens
from starpo.ragen.learning.learners.data.trajectories import assemble
from starpo.schemas.datasets import REWARDS, SELECTION


def turn(member: int, index: int, prompt: list[int], response: list[int], *, starts: bool, group: str = "g0") -> dict:
    return {
        "group_id": group,
        "member": member,
        "turn": index,
        "prompt_ids": prompt,
        "response_ids": response,
        "behaviour_logprobs": [-token / 10 for token in response],
        "is_context_start": starts,
    }


def rewards_of(turns: pa.Table, totals: list[float], invalid: tuple[str, ...] = (), shift: float = 0.0) -> pa.Table:
    ids = turns["trajectory_id"].to_pylist()
    returns = {i: sum(t for j, t in zip(ids, totals, strict=True) if j == i) for i in ids}
    return pa.Table.from_pylist(
        [
            {
                "trajectory_id": i,
                "group_id": group,
                "turn": index,
                "component_names": ["environment"],
                "component_values": [total],
                "total": total,
                "trajectory_return": returns[i],
                "normalised_return": returns[i] + shift,
                "is_valid": i not in invalid,
            }
            for i, group, index, total in zip(
                ids, turns["group_id"].to_pylist(), turns["turn"].to_pylist(), totals, strict=True
            )
        ],
        schema=REWARDS.schema,
    )


def selection_of(kept: dict[str, bool]) -> pa.Table:
    filler = {"env": "fake", "env_seed": 7, "num_trajectories": 2, "num_valid": 2, "metric": "std", "strategy": "none"}
    numbers = dict.fromkeys(("score", "return_std", "return_mean", "return_max", "return_min", "success_rate"), 0.0)
    rows = [
        filler | numbers | {"group_id": group, "rank": rank, "kept": is_kept, "reason": "so"}
        for rank, (group, is_kept) in enumerate(kept.items())
    ]
    return pa.Table.from_pylist(rows, schema=SELECTION.schema)


@pytest.fixture
def two_turns(make_turns):
    def build(starts_second: bool):
        first, second = turn(0, 0, [1, 2], [10, 11], starts=True), turn(0, 1, [3], [12], starts=starts_second)
        return make_turns([first, second])

    return build


def test_full_context_is_one_segment(two_turns):
    turns = two_turns(starts_second=False)
    (trajectory,) = assemble(turns, rewards_of(turns, [0.5, 1.0], shift=-9.0), selection_of({"g0": True}))
    (segment,) = trajectory.segments
    assert segment.token_ids.tolist() == [1, 2, 10, 11, 3, 12]
    assert segment.response_mask.tolist() == [False, False, True, True, False, True]
    assert segment.behaviour_logprobs.tolist() == pytest.approx([0, 0, -1.0, -1.1, 0, -1.2])
    assert segment.turn.tolist() == [-1, -1, 0, 0, -1, 1]
    assert trajectory.turn_rewards.tolist() == [0.5, 1.0]
    assert (trajectory.trajectory_return, trajectory.normalised_return) == (1.5, -7.5)
    assert (trajectory.trajectory_id, trajectory.group_id) == ("g0-0", "g0")
    assert trajectory.num_response_tokens == 3


def test_windowed_context_segments_each_turn(two_turns):
    turns = two_turns(starts_second=True)
    (trajectory,) = assemble(turns, rewards_of(turns, [0, 1]), selection_of({"g0": True}))
    assert [s.token_ids.tolist() for s in trajectory.segments] == [[1, 2, 10, 11], [3, 12]]
    assert [s.turn.tolist() for s in trajectory.segments] == [[-1, -1, 0, 0], [-1, 1]]


def test_assemble_keeps_selected_in_turn_order(make_turns):
    rows = [turn(m, 0, [1], [10 + m], starts=True, group=g) for g in ("b", "a", "c") for m in (1, 0)]
    turns = make_turns(rows)
    rewards = rewards_of(turns, [1, 2, 3, 4, 5, 6], invalid=("a-1",))
    kept = assemble(turns, rewards, selection_of({"a": True, "b": True, "c": False}))
    assert [t.trajectory_id for t in kept] == ["b-1", "b-0", "a-0"]
    assert [t.trajectory_return for t in kept] == [1, 2, 4]


def test_order_of_rows_does_not_matter(make_turns):
    rows = [turn(m, k, [1, k], [10 + m, 20 + k], starts=k == 0) for m in (0, 1) for k in (0, 1, 2)]
    turns = make_turns(rows)
    rewards = rewards_of(turns, [0, 1, 2, 3, 4, 5])
    expected = assemble(turns, rewards, selection_of({"g0": True}))
    shuffled = assemble(turns.take([2, 0, 5, 3, 1, 4]), rewards.take([4, 1, 0, 5, 2, 3]), selection_of({"g0": True}))
    for one, other in zip(expected, shuffled, strict=True):
        assert one.turn_rewards.tolist() == other.turn_rewards.tolist()
        assert [s.token_ids.tolist() for s in one.segments] == [s.token_ids.tolist() for s in other.segments]


def test_chunked_and_sliced_tables_assemble_alike(make_turns):
    turns = make_turns([turn(m, 0, [m] * (m + 1), [10 + m] * (m + 1), starts=True) for m in range(4)])
    pieces = pa.concat_tables([turns.slice(0, 1), turns.slice(1, 2), turns.slice(3)])
    rewards = rewards_of(turns, [1, 2, 3, 4])
    for trajectory, member in zip(assemble(pieces, rewards, selection_of({"g0": True})), range(4), strict=True):
        assert trajectory.segments[0].token_ids.tolist() == [member] * (member + 1) + [10 + member] * (member + 1)


def test_empty_turn_keeps_reward_without_tokens(make_turns):
    rows = [turn(0, 0, [1, 2], [10], starts=True), turn(0, 1, [3, 4, 5], [], starts=False)]
    turns = make_turns(rows)
    (trajectory,) = assemble(turns, rewards_of(turns, [1.0, -2.0]), selection_of({"g0": True}))
    assert [s.token_ids.tolist() for s in trajectory.segments] == [[1, 2, 10]]
    assert trajectory.turn_rewards.tolist() == [1.0, -2.0]


def test_trajectory_without_responses_has_no_segments(make_turns):
    turns = make_turns([turn(0, 0, [1, 2], [], starts=True), turn(1, 0, [1, 2], [9], starts=True)])
    first, second = assemble(turns, rewards_of(turns, [1.0, 2.0]), selection_of({"g0": True}))
    assert first.segments == ()
    assert first.num_response_tokens == 0
    assert second.segments[0].token_ids.tolist() == [1, 2, 9]


def test_nothing_kept_is_an_empty_list(make_turns):
    turns = make_turns([turn(0, 0, [1], [2], starts=True)])
    assert assemble(turns, rewards_of(turns, [1.0]), selection_of({"g0": False})) == []


def test_rewards_of_other_turns_are_refused(make_turns):
    turns = make_turns([turn(0, 0, [1], [2], starts=True)])
    other = make_turns([turn(1, 0, [1], [2], starts=True)])
    with pytest.raises(LearnerError, match="trajectory 'g0-1' has rewards but no turns"):
        assemble(turns, rewards_of(other, [1.0]), selection_of({"g0": True}))


def test_selection_missing_a_group_is_rejected(make_turns):
    turns = make_turns([turn(0, 0, [1], [2], starts=True)])
    with pytest.raises(LearnerError, match="no row for group 'g0'"):
        assemble(turns, rewards_of(turns, [1.0]), selection_of({"g9": True}))


def test_greedy_return_is_group_baseline(make_turns):
    """Group g0 has a greedy member, g1 one that failed, and g2 none."""
    rows = [turn(member, 0, [1], [10], starts=True, group=group) for group in ("g0", "g1", "g2") for member in range(2)]
    greedy = [turn(2, 0, [1], [11], starts=True, group=group) | {"origin": "greedy"} for group in ("g0", "g1")]
    greedy[1] |= {"status": "env_error"}
    turns = make_turns([*rows, *greedy])
    rewards = rewards_of(turns, [0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 5.0, 7.0], invalid=("g0-2", "g1-2"), shift=-0.5)
    trajectories = assemble(turns, rewards, selection_of({"g0": True, "g1": True, "g2": True}))
    assert [(t.trajectory_id, t.greedy_return) for t in trajectories] == [
        ("g0-0", 5.0), ("g0-1", 5.0), ("g1-0", None), ("g1-1", None), ("g2-0", None), ("g2-1", None),
    ]  # fmt: skip
    assert all((t.turn_weights == 1).all() for t in trajectories)


def test_turns_that_search_chose_are_weighed(make_turns):
    chosen = {"origin": "search", "num_candidates": 4}
    rows = [turn(0, n, [1], [10, 11], starts=True) | chosen | {"num_as_good": t} for n, t in enumerate([1, 4])]
    turns = make_turns([*rows, turn(0, 2, [1], [], starts=True), turn(1, 0, [1], [10], starts=True)])
    first, second = assemble(turns, rewards_of(turns, [0.0] * 4), selection_of({"g0": True}))
    np.testing.assert_allclose(first.turn_weights, [0.25 / (1 - 0.75**4), 1.0, 1.0])
    assert second.turn_weights.tolist() == [1.0]
    weights = ResponseTokens([second, first]).weight_N.tolist()
    assert weights == pytest.approx([1.0, 0.365714, 0.365714, 1.0, 1.0], abs=1e-6)


@pytest.mark.parametrize(
    ("absent", "what"),
    [
        ({"prompt_ids": [], "response_ids": [], "behaviour_logprobs": []}, "tokens"),
        ({"behaviour_logprobs": []}, "log-probs"),
    ],
)
def test_unrecorded_turns_cannot_be_trained_on(make_turns, absent, what):
    unrecorded = turn(1, 0, [1], [2], starts=True, group="g1") | absent | {"finish_reason": "unknown"}
    turns = make_turns([turn(0, 0, [1], [2], starts=True), unrecorded])
    rewards = rewards_of(turns, [1.0, 2.0])
    message = f"'g1-1' cannot be trained on: imported or recorded from a source without the {what} of its responses"
    with pytest.raises(LearnerError, match=message):
        assemble(turns, rewards, selection_of({"g0": True, "g1": True}))
    assert len(assemble(turns, rewards, selection_of({"g0": True, "g1": False}))) == 1
