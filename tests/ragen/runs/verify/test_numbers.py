"""Episodes of an evaluation against their turns."""

import pyarrow as pa
import pytest

from starpo.ragen.agents.evaluation.episodes import episode_turns, fold_episodes
from starpo.ragen.runs.verify.numbers import folding_differences
from starpo.schemas.validate import validate
from tests.examples import example

TURNS = episode_turns(example("turns"), has_tokens=True)
EPISODES = fold_episodes(TURNS, "sokoban", 0.5)


def changed(name: str, value: object) -> pa.Table:
    """Return the episodes with another value in the first row."""
    rows = EPISODES.to_pylist()
    rows[0][name] = value
    return pa.Table.from_pylist(rows, schema=EPISODES.schema)


def test_episodes_are_those_of_their_turns() -> None:
    assert list(folding_differences(EPISODES, TURNS)) == []
    assert list(folding_differences(EPISODES.take(list(range(len(EPISODES)))[::-1]), TURNS)) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [("success", None), ("episode_return", 99.0), ("responses", ["x"] * 5), ("num_response_tokens", 1)],
)
def test_changed_episodes_are_named(name: str, value: object) -> None:
    value = not EPISODES[name][0].as_py() if value is None else value
    assert list(folding_differences(changed(name, value), TURNS)) == [
        f"the episodes' {name} is not that of their turns"
    ]


def test_missing_episodes_are_counted() -> None:
    (sentence,) = folding_differences(EPISODES.slice(1), TURNS)
    assert sentence == "there are 7 episodes, their turns give 8"


@pytest.mark.parametrize("has_tokens", [False, True])
def test_unknown_tokens_are_not_counted(has_tokens: bool) -> None:
    rows = example("turns").to_pylist()
    for row in rows:
        row["behaviour_logprobs"] = [float("nan")] * len(row["response_ids"])
    turns = episode_turns(pa.Table.from_pylist(rows, schema=example("turns").schema), has_tokens=has_tokens)
    assert {row["finish_reason"] for row in turns.to_pylist()} == {"unknown"}
    assert not any(row["behaviour_logprobs"] for row in turns.to_pylist())
    assert [row["response_ids"] for row in turns.to_pylist()] == [row["response_ids"] * has_tokens for row in rows]
    validate(turns, "episode_turns")
    assert all(row["prompt_ids"] for row in turns.to_pylist())
    assert list(folding_differences(EPISODES, turns)) == []
