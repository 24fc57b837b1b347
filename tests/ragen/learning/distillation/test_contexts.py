"""The teacher's contexts are the policy's tokens with hints between them; the policy's own prompts have none."""

import pytest

from starpo.ragen.core.errors import LearnerError
from starpo.ragen.learning.distillation.contexts import TeacherContexts
from tests.examples import example_turns

GENERATION, HINT = [7, 8], [91, 92, 93]


def turns_of(rows):
    """Two turns of one trajectory in one context, and one of another, by prompt and response."""
    table = example_turns().slice(0, 0)
    template = example_turns().slice(0, 1).to_pylist()[0]
    made = [
        template
        | {"trajectory_id": name, "group_id": "g", "turn": turn, "is_context_start": starts}
        | {"prompt_ids": prompt, "response_ids": response, "behaviour_logprobs": [-0.5] * len(response)}
        for name, turn, starts, prompt, response in rows
    ]
    return type(table).from_pylist(made, schema=table.schema)


TURNS = turns_of(
    [
        ("g/0", 1, False, [3, 7, 8], [31, 32]),
        ("g/0", 0, True, [1, 2, 7, 8], [21]),
        ("g/1", 0, True, [1, 2, 7, 8], [22, 23]),
        ("g/1", 1, False, [4, 7, 8], []),
    ]
)


def test_without_hints_tokens_are_the_policys() -> None:
    contexts = TeacherContexts(TURNS)
    assert [one.token_ids.tolist() for one in contexts.segments] == [
        [1, 2, 7, 8, 21, 3, 7, 8, 31, 32],
        [1, 2, 7, 8, 22, 23],
    ]
    assert [one.response_mask.nonzero()[0].tolist() for one in contexts.segments] == [[4, 8, 9], [4, 5]]
    assert contexts.segment_start.tolist() == [0, 3]
    assert [(turn.trajectory_id, turn.turn, turn.num_tokens) for turn in contexts.turns] == [
        ("g/0", 0, 1),
        ("g/0", 1, 2),
        ("g/1", 0, 2),
    ]


def test_hint_stands_before_the_generation() -> None:
    contexts = TeacherContexts(TURNS, None, {("g/0", 1): HINT}, GENERATION)
    hinted, plain = (one.token_ids.tolist() for one in contexts.segments)
    assert hinted == [1, 2, 7, 8, 21, 3, 91, 92, 93, 7, 8, 31, 32]
    assert plain == [1, 2, 7, 8, 22, 23]
    assert [turn.num_hint_tokens for turn in contexts.turns] == [0, 3, 0]
    assert TURNS["prompt_ids"].to_pylist() == [[3, 7, 8], [1, 2, 7, 8], [1, 2, 7, 8], [4, 7, 8]]


def test_contexts_start_where_the_policys_do() -> None:
    windows = turns_of([("g/0", 0, True, [1, 7, 8], [21]), ("g/0", 1, True, [2, 7, 8], [22])])
    contexts = TeacherContexts(windows, None, {("g/0", 0): HINT}, GENERATION)
    assert [one.token_ids.tolist() for one in contexts.segments] == [[1, 91, 92, 93, 7, 8, 21], [2, 7, 8, 22]]


def test_hint_in_own_prompt_is_refused() -> None:
    leaking = turns_of([("g/0", 0, True, [1, 91, 92, 93, 7, 8], [21])])
    with pytest.raises(LearnerError, match="'g/0', turn 0 contains the teacher's hint token by token"):
        TeacherContexts(leaking, None, {("g/0", 0): HINT}, GENERATION)


def test_prompt_with_another_end_is_refused() -> None:
    with pytest.raises(LearnerError, match="no place for a hint"):
        TeacherContexts(TURNS, None, {("g/0", 1): HINT}, [7, 9])
