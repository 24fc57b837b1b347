"""Programs as players: what they hear is what is recorded, and whatever they do has a status of its own."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from starpo.ragen.agents.policy.load import load_tokenizer
from starpo.ragen.agents.prompting.context import ContextBuilder
from starpo.ragen.agents.rollout import loop
from starpo.ragen.agents.rollout.episode import Episode
from starpo.ragen.agents.rollout.torch_engine import TorchEngine
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.policy import TinyPolicy
from starpo.ragen.config.rollout import SamplingConfig
from starpo.ragen.envs.frozen_lake.environment import FrozenLakeSettings
from starpo.ragen.envs.sokoban.environment import SokobanSettings
from starpo.ragen.learning.imitation import imitate
from starpo.ragen.methods.programs import player
from starpo.ragen.methods.programs.settings import ProgramSettings
from starpo.ragen.methods.programs.tasks import task_of
from starpo.schemas.validate import validate

AGENT = AgentConfig(prompt="state", should_think=False, max_turns=4)
SAMPLING = SamplingConfig(max_response_tokens=24)
GAMES = {
    "frozen_lake": FrozenLakeSettings(observation="compact"),
    "sokoban": SokobanSettings(observation="compact", generator="distance", min_solution=2, max_solution=4),
}


@pytest.fixture(scope="module")
def policy_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A small policy that has learned to write actions."""
    folder = str(tmp_path_factory.mktemp("policy"))
    sizes = {"hidden_size": 32, "num_layers": 1, "num_heads": 2, "num_kv_heads": 1, "intermediate_size": 32}
    config = TinyPolicy(**sizes, warm_start_steps=80, warm_start_batch_size=16, demonstration_turns=300)
    imitate(config, GAMES["sokoban"], AGENT, SAMPLING.max_response_tokens, frozenset(), folder)
    return folder


def played(play, folder, settings, agent, episodes, sampling=SAMPLING, max_context_tokens=1024):
    engine = TorchEngine(num_threads=1)
    engine.load(folder, "key")
    tokenizer = load_tokenizer(folder)
    contexts = ContextBuilder(tokenizer, agent, sampling.max_response_tokens)
    session = engine.session(sampling, contexts.stop_token_ids)
    table = play(session, contexts, tokenizer, settings, agent, sampling, max_context_tokens, episodes)
    validate(table, "turns")
    return table


@pytest.mark.parametrize(
    ("game", "changes"), [("sokoban", {}), ("frozen_lake", {"prompt": "full", "system_prompt": "You play a game."})]
)
def test_an_external_program_plays_as_the_built_in_loop(game, changes, policy_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(player, "LINGER_S", 20.0)  # full rounds, as in the built-in loop: then the bytes are equal
    agent = AGENT.model_copy(update=changes)
    tasks = [
        {"env_seed": seed, "environment": GAMES[game].model_dump(), "agent": agent.model_dump(),
         "max_tokens": SAMPLING.max_response_tokens}
        for seed in (3, 4)
    ]  # fmt: skip
    (tmp_path / "tasks.jsonl").write_text("\n".join(map(json.dumps, tasks)))
    script = Path(__file__).with_name("game_agent.py")
    settings = ProgramSettings(command=[sys.executable, str(script)], tasks=str(tmp_path / "tasks.jsonl"))
    episodes = [Episode(f"g{seed}", member, seed, member, 100 + member) for seed in (0, 1) for member in range(2)]
    own = [replace(one, env_seed=task_of(settings, one.env_seed)["env_seed"]) for one in episodes]

    heard = played(player.play, policy_folder, settings, agent, episodes).to_pylist()
    expected = played(loop.play, policy_folder, GAMES[game], agent, own).to_pylist()

    assert len(expected) > len(episodes)
    assert any(row["executed_actions"] for row in expected)
    names = (
        "trajectory_id", "turn", "prompt_ids", "response_ids", "behaviour_logprobs", "is_context_start", "response",
        "finish_reason", "success",
    )  # fmt: skip
    assert [[row[name] for name in names] for row in heard] == [[row[name] for name in names] for row in expected]
    paid = [{}, {}]
    for rows, sums in zip((heard, expected), paid, strict=True):
        for row in rows:
            sums[row["trajectory_id"]] = sums.get(row["trajectory_id"], 0.0) + sum(row["action_rewards"])
    assert paid[0] == pytest.approx(paid[1])
