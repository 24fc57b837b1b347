"""Players without a model: random actions and the solver, through the rollout loop."""

import pytest

from starpo.ragen.agents.policy.tokenizer import make_tokenizer
from starpo.ragen.agents.prompting.context import ContextBuilder
from starpo.ragen.agents.rollout.engine import Request
from starpo.ragen.agents.rollout.episode import Episode
from starpo.ragen.agents.rollout.loop import play
from starpo.ragen.agents.rollout.scripted import ScriptedEngine
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.rollout import SamplingConfig
from starpo.ragen.core.errors import EngineError
from starpo.ragen.envs.sokoban.environment import SokobanSettings

AGENT = AgentConfig(max_turns=5, max_actions=10, max_actions_per_turn=3)
SAMPLING = SamplingConfig(max_response_tokens=512)


def rows(player: str) -> list[dict]:
    tokenizer = make_tokenizer()
    session = ScriptedEngine(player).session(SAMPLING, (0,))
    contexts = ContextBuilder(tokenizer, AGENT, 512)
    episodes = [Episode(f"p{seed}", 0, seed, seed, seed) for seed in range(8)]
    settings = SokobanSettings(generator="distance", min_solution=1, max_solution=5)
    return play(session, contexts, tokenizer, settings, AGENT, SAMPLING, 65_536, episodes).to_pylist()


def test_solver_solves_and_random_does_not() -> None:
    solved = {
        player: {row["trajectory_id"] for row in rows(player) if row["success"]} for player in ("solver", "random")
    }
    assert len(solved["solver"]) == 8
    assert len(solved["random"]) < 8


def test_random_player_uses_a_whole_turn() -> None:
    turns = rows("random")
    assert {len(row["parsed_actions"]) for row in turns} == {3}
    assert {row["format_ok"] for row in turns} == {True}
    assert [turn["response"] for turn in turns] == [turn["response"] for turn in rows("random")]


def test_request_without_an_environment() -> None:
    request = Request("program", [1], [], 0)
    with pytest.raises(EngineError, match="a program asks a model"):
        ScriptedEngine("random").generate([request])
