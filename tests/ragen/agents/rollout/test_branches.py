"""Stored episodes continued from some of their turns: same contexts, common random numbers, and what has changed."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from starpo.ragen.agents.prompting.context import ContextBuilder
from starpo.ragen.agents.rollout.branches import Branches, continuation_id, mark_of
from starpo.ragen.agents.rollout.job import RolloutJob
from starpo.ragen.agents.rollout.loop import Episode, play
from starpo.ragen.agents.rollout.pools.local_player import LocalPlayer
from starpo.ragen.agents.rollout.pools.worker import pack_request, unpack_request
from starpo.ragen.agents.rollout.torch.engine import TorchEngine
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.rollout import SamplingConfig
from starpo.ragen.core.errors import EnvironmentFault
from starpo.ragen.core.seeding import token_uniforms

SAMPLING = SamplingConfig(max_response_tokens=60)
CONTEXTS = [
    AgentConfig(max_actions=50),
    AgentConfig(max_actions=50, prompt="state", context="window"),
    AgentConfig(max_actions=50, context="window", window_turns=2),
]
SAID = ["<think>t</think><answer>Right</answer>", "nonsense", "<think>t</think><answer>Left</answer>"]


@pytest.fixture
def run(tokenizer, corridor, scripted_engine) -> Callable[..., Any]:
    """`run(episodes, agent, script)`: rows of the episodes, and the requests."""

    def play_with(episodes, agent=CONTEXTS[0], script=lambda _, turn: SAID[turn % 3], environment=None):
        contexts = ContextBuilder(tokenizer, agent, SAMPLING.max_response_tokens)
        session = scripted_engine(script).session(SAMPLING, contexts.stop_token_ids)
        environment = environment or corridor(goal=9)
        table = play(session, contexts, tokenizer, environment, agent, SAMPLING, 4096, episodes)
        return table.to_pylist(), session.requests

    return play_with


def stored_as(rows: list[dict[str, Any]], starts: list[tuple[int, int, int]], seed: int = 3) -> Branches:
    names = ("group_id", "member", "env_seed", "dynamics_seed", "sampling_seed")
    responses = [(row["response_ids"], row["finish_reason"], row["response"], mark_of(row)) for row in rows]
    return Branches(**{name: rows[0][name] for name in names}, responses=responses, starts=starts, seed=seed)


@pytest.mark.parametrize("agent", CONTEXTS, ids=["full", "window 1", "window 2"])
def test_continuations_begin_with_stored_contexts(run, agent: AgentConfig) -> None:
    rows, requests = run([Episode("g0", 0, 7, 1, 2)], agent)
    prompts = [request.prompt_ids for request in requests]
    assert len(rows) == agent.max_turns
    starts = [(turn, 0, 2) for turn in range(len(rows))]
    continued, continuing = run([stored_as(rows, starts)], agent)
    for turn in range(len(rows)):
        name = continuation_id("g0-0", turn, 1)
        assert next(request.prompt_ids for request in continuing if request.sequence_id == name) == prompts[turn]
        of_it = [row for row in continued if row["trajectory_id"] == name]
        assert [row["turn"] for row in of_it] == list(range(turn, len(rows)))
        assert of_it[0]["actions_left"] == rows[turn]["actions_left"]
        assert of_it[0]["origin"] == "policy"


def test_random_numbers_follow_number_and_turn(run) -> None:
    rows, _ = run([Episode("g0", 0, 7, 1, 2)])
    other, _ = run([Episode("g1", 4, 8, 5, 6)])
    _, continuing = run([stored_as(rows, [(0, 0, 2), (2, 0, 2)]), stored_as(other, [(1, 1, 2)])])
    uniforms = {}
    for request in continuing:
        name = request.sequence_id
        number, turn = int(name.rpartition(".")[2]), int(name.rpartition("/")[2].partition(".")[0])
        turn += sum(name == earlier for earlier, _ in uniforms)
        uniforms[name, turn] = request.uniforms
        same = [of for (at_name, at), of in uniforms.items() if at == turn and at_name.endswith(f".{number}")]
        assert np.array_equal(request.uniforms, same[0])
    assert not np.array_equal(uniforms["g0-0/0.0", 0], uniforms["g0-0/0.1", 0])
    assert not np.array_equal(uniforms["g0-0/0.0", 0], uniforms["g0-0/0.0", 1])
    assert not np.array_equal(uniforms["g0-0/0.0", 0], token_uniforms(2, 0, 60))


def test_changed_environment_is_named(run, corridor) -> None:
    rows, _ = run([Episode("g0", 0, 7, 1, 2)], script=lambda *_: SAID[0])
    with pytest.raises(EnvironmentFault, match=r"trajectory g0-0, played again, differs .* turn 0"):
        run([stored_as([{**rows[0], "action_rewards": [0.5]}, *rows[1:]], [(2, 0, 1)])])
    with pytest.raises(EnvironmentFault, match=r"turn 1 \(RuntimeError: the floor gave way"):
        run([stored_as(rows, [(2, 0, 1)])], environment=corridor(goal=9, fault="step"))
    with pytest.raises(EnvironmentFault, match="differs from what is stored in turn 1"):
        run([stored_as(rows, [(3, 0, 1)])], environment=corridor(goal=2))


def test_branches_survive_transport(job: RolloutJob) -> None:
    branches = Branches("g0", 1, 2, 3, 4, responses=[([5, 6], "stop", "é", "m")], starts=[(1, 0, 8)], seed=9)
    _, (again, plain) = unpack_request(pack_request(job, [branches, Episode("g1", 0, 1, 2, 3)]))
    assert json.dumps(vars(again)) == json.dumps(vars(branches))
    assert isinstance(again, Branches)
    assert type(plain) is Episode


def test_engine_repeats_rows_in_any_company(job: RolloutJob) -> None:
    player = LocalPlayer(TorchEngine(num_threads=1))
    rows = player.play(job, [Episode("g0", 0, 7, 1, 2)]).to_pylist()
    both = player.play(job, [stored_as(rows, [(0, 0, 3), (1, 0, 3)])]).to_pylist()
    alone = player.play(job, [replace(stored_as(rows, [(1, 2, 3)]))]).to_pylist()
    name = continuation_id("g0-0", 1, 2)
    columns = ("turn", "response_ids", "executed_actions", "state_digest")
    assert [[r[c] for c in columns] for r in alone] == [
        [r[c] for c in columns] for r in both if r["trajectory_id"] == name
    ]
