"""Recorded candidates of search: real siblings agree with the turns, and any contradiction is found."""

from typing import Any

import pyarrow as pa
import pytest

from starpo.ragen.agents.prompting.context import ContextBuilder
from starpo.ragen.agents.rollout.episode import Episode
from starpo.ragen.agents.rollout.siblings import take_siblings
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.rollout import SamplingConfig
from starpo.ragen.envs.sokoban.environment import SokobanSettings
from starpo.ragen.methods.search.play import play_searching
from starpo.ragen.methods.search.settings import BeamConfig, BestOfConfig
from starpo.ragen.runs.verify.siblings import sibling_differences
from tests.ragen.runs.verify.conftest import ChattySession

AGENT = AgentConfig(prompt="state")
SAMPLING = SamplingConfig(max_response_tokens=40)
SOKOBAN = SokobanSettings(generator="distance", min_solution=1, max_solution=3)
BEST_OF = BestOfConfig(num_candidates=3)


def searched(tokenizer: Any, search: Any) -> tuple[pa.Table, pa.Table]:
    contexts = ContextBuilder(tokenizer, AGENT, SAMPLING.max_response_tokens)
    names = ("Up", "Down", "Left", "Right")
    speaker = ChattySession(tokenizer, contexts.stop_token_ids[0], names, SAMPLING.max_response_tokens)
    episodes = [Episode("g0", member, 5, member, member) for member in range(3)]
    return take_siblings(play_searching(speaker, contexts, tokenizer, SOKOBAN, AGENT, SAMPLING, 4096, episodes, search))


@pytest.mark.parametrize("search", [BEST_OF, BeamConfig()])
def test_what_was_played_agrees(tokenizer, search) -> None:
    turns, siblings = searched(tokenizer, search)
    assert list(sibling_differences(siblings, turns, search)) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"response": "x"}, "response is "),
        ({"behaviour_logprobs": [-0.5]}, "behaviour_logprobs is "),
        ({"chosen": False}, "none of its siblings is marked as chosen"),
        ({"score": -99.0}, "num_as_good is "),
        ({"score": None}, "num_as_good is "),  # worse than any score
        ({"turn": 99}, "none of its siblings is marked as chosen"),
    ],
)
def test_a_changed_sibling_is_found(tokenizer, changes: dict[str, Any], said: str) -> None:
    turns, siblings = searched(tokenizer, BEST_OF)
    rows = siblings.to_pylist()
    index = next(i for i, row in enumerate(rows) if row["chosen"])
    rows[index] |= changes
    (first, *_) = sibling_differences(pa.Table.from_pylist(rows, schema=siblings.schema), turns, BEST_OF)
    assert first.startswith("trajectory 'g0-0', turn 0: ")
    assert said in first


def test_another_than_the_best_is_found(tokenizer) -> None:
    turns, siblings = searched(tokenizer, BEST_OF)
    rows = siblings.to_pylist()
    for row in rows:
        row["score"] = 1.0 if row["chosen"] else 2.0
    as_said = turns.set_column(
        turns.schema.get_field_index("num_as_good"), "num_as_good", pa.array([3] * turns.num_rows, pa.int32())
    )
    found = list(sibling_differences(pa.Table.from_pylist(rows, schema=siblings.schema), as_said, BEST_OF))
    assert len(found) == turns.num_rows
    assert "is better" in found[0]


def test_other_settings_and_surplus_rows_are_found(tokenizer) -> None:
    turns, siblings = searched(tokenizer, BEST_OF)
    (first, *_) = sibling_differences(siblings, turns, BestOfConfig(num_candidates=4))
    assert "num_candidates is 3, in the settings 4" in first
    *_, last = sibling_differences(siblings, turns.slice(0, 1), BEST_OF)
    assert last.endswith("it has siblings, but was not chosen by search")
