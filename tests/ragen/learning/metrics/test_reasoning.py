"""Turns whose reasoning is cross-scored: which are chosen, where their reasoning begins, the order of scores."""

import numpy as np
import pyarrow as pa

from starpo.ragen.learning.metrics.reasoning import Reasoned, crossed, matrices, pick
from starpo.schemas.datasets import NO_RESPONSE

WORDS = {10: "<think>", 11: "go", 12: " up", 13: "</think>", 14: "<answer>Up</answer>", 15: ">g", 16: "<think", 17: "o"}


def decode(ids: list[int]) -> str:
    return "".join(WORDS.get(token, "?") for token in ids)


def row_of(group: str, member: int = 0, turn: int = 0, **other: object) -> dict:
    return {
        "group_id": group, "member": member, "turn": turn, "prompt_ids": [turn + 1, ord(group)],
        "response_ids": [10, 11, 12, 13, 14], "behaviour_logprobs": [-0.1] * 5, "think": "go up", **other,
    }  # fmt: skip


def test_context_ends_where_reasoning_begins(make_turns) -> None:
    [choice] = pick(make_turns([row_of("a")]), "first_turn", 8, 0, decode)
    assert choice == Reasoned((1, ord("a"), 10), (11, 12))


def test_later_turn_of_full_context_complete(make_turns) -> None:
    turns = make_turns([row_of("a", is_context_start=True), row_of("a", turn=1, is_context_start=False)])
    contexts = {pick(turns, "any_turn", 8, seed, decode)[0].context for seed in range(20)}
    assert contexts == {(1, 97, 10), (1, 97, 10, 11, 12, 13, 14, 2, 97, 10)}
    anew = make_turns([row_of("a"), row_of("a", turn=1, is_context_start=True)])
    assert {pick(anew, "any_turn", 8, seed, decode)[0].context for seed in range(20)} == {(1, 97, 10), (2, 97, 10)}


def test_rows_may_lie_in_any_order(make_turns) -> None:
    turns = make_turns([row_of("a"), row_of("a", turn=1, is_context_start=False), row_of("b")])
    mixed = turns.take(pa.array([1, 2, 0]))
    for choice in ("first_turn", "any_turn"):
        assert pick(mixed, choice, 8, 3, decode) == pick(turns, choice, 8, 3, decode)


def test_token_starting_in_tag_is_excluded(make_turns) -> None:
    turns = make_turns([row_of("a", response_ids=[16, 15, 17, 12, 13], behaviour_logprobs=[-0.1] * 5)])
    [choice] = pick(turns, "first_turn", 8, 0, decode)
    assert choice.reasoning == (17, 12)


def test_reasoning_contained_in_its_tag() -> None:
    words = ["<", "think", ">", "think", "</", "think", ">", "<answer>", "Up", "</answer>"]  # tags of several tokens
    row = {
        "trajectory_id": "a", "group_id": "g", "member": 0, "turn": 0, "status": "ok", "think": "think",
        "origin": "policy", "response_ids": list(range(len(words))), "prompt_ids": [90], "is_context_start": True,
    }  # fmt: skip
    [choice] = pick(pa.Table.from_pylist([row]), "first_turn", 4, 0, lambda ids: "".join(words[n] for n in ids))
    assert choice == Reasoned((90, 0, 1, 2), (3,))


def test_groups_come_before_members(make_turns) -> None:
    rows = [row_of(group, member) for group in "ab" for member in range(3)]
    rows += [row_of("c", think=None), row_of("d", **NO_RESPONSE, status="timeout", truncated=True)]
    chosen = pick(make_turns(rows), "first_turn", 3, 0, decode)
    assert [row.context[1] for row in chosen] == [ord("a"), ord("b"), ord("a")]
    assert len(pick(make_turns(rows), "first_turn", 64, 0, decode)) == 6


def test_scores_ordered_reasoning_by_context() -> None:
    rows = [Reasoned((1,), (5, 6)), Reasoned((2, 3), (7,))]
    trajectories = crossed(rows)
    tokens = [segment.token_ids.tolist() for trajectory in trajectories for segment in trajectory.segments]
    assert tokens == [[1, 5, 6], [2, 3, 5, 6], [1, 7], [2, 3, 7]]
    scores = matrices(np.array([-1.0, -3.0, -5.0, -7.0, -9.0, -11.0], dtype=np.float32), rows)
    assert scores["sequence"].tolist() == [[-4.0, -12.0], [-9.0, -11.0]]
    assert scores["token"].tolist() == [[-2.0, -6.0], [-9.0, -11.0]]
