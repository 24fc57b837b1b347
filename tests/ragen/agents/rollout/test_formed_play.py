"""A form of reasoning from the prompt to the rewards: described, followed, stored, verified and rewarded."""

import pytest

from starpo.ragen.agents.prompting.context import ContextBuilder
from starpo.ragen.agents.prompting.forms import write_reasoning
from starpo.ragen.agents.rollout.loop import Episode, play
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.reward import RewardConfig
from starpo.ragen.config.rollout import SamplingConfig
from starpo.ragen.core.lookup import resolve
from starpo.ragen.core.registry import SCENES
from starpo.ragen.envs import make
from starpo.ragen.envs.frozen_lake.environment import FrozenLakeSettings
from starpo.ragen.envs.sokoban.environment import SokobanSettings
from starpo.ragen.learning.reward.compute import compute_rewards
from starpo.ragen.runs.verify.texts import text_differences

AGENT = AgentConfig(form="grounding_worldmodeling", max_turns=4, max_actions=8, max_actions_per_turn=2)
SAMPLING = SamplingConfig(max_response_tokens=4000)
SEED = 5
ACTIONS = [("Up", "Left"), ("Down",), ("Right", "Right"), ("Left",)]
COMPONENTS = ["reasoning_format", "grounding", "world_model", "agreement"]


def an_honest_player(settings) -> list[str]:
    """Responses of all turns, with true observations and predictions."""
    environment, scene = make(settings), resolve(SCENES[settings.type])
    observation, _ = environment.reset(seed=SEED)
    responses = []
    for actions in ACTIONS:
        before, is_over = observation, False
        for action in actions:
            if not is_over:
                observation, _, is_over, _, _ = environment.step(action)
        scenes = (scene(shown, (), {}) for shown in (before, observation))
        think = write_reasoning(AGENT.form, f"I go {', then '.join(actions)}.", *scenes)
        responses.append(f"<think>{think}</think><answer>{' || '.join(actions)}</answer>")
        if is_over:
            break
    return responses


@pytest.mark.parametrize(
    "settings",
    [
        SokobanSettings(),
        SokobanSettings(num_boxes=2, height=7, width=7, observation="compact"),
        FrozenLakeSettings(slip=0.0),
    ],
    ids=["sokoban", "two boxes", "frozen lake"],
)
def test_honest_player_is_paid_every_turn(tokenizer, scripted_engine, settings):
    contexts = ContextBuilder(tokenizer, AGENT, SAMPLING.max_response_tokens)
    responses = an_honest_player(settings)
    session = scripted_engine(lambda _, turn: responses[turn]).session(SAMPLING, contexts.stop_token_ids)
    episodes = (Episode("g0", 0, env_seed=SEED, dynamics_seed=0, sampling_seed=1),)
    turns = play(session, contexts, tokenizer, settings, AGENT, SAMPLING, 100_000, episodes)
    assert set(turns["status"].to_pylist()) == {"ok"}
    assert turns.num_rows == len(responses)
    rewards = compute_rewards(turns, RewardConfig(components=COMPONENTS))
    assert rewards["component_values"].to_pylist() == [[0.5, 0.5, 0.5, 0.5]] * len(responses)
    assert list(text_differences(turns, settings, tokenizer, contexts)) == []


def test_other_form_is_malformed_and_reported(tokenizer, scripted_engine, corridor):
    contexts = ContextBuilder(tokenizer, AGENT, SAMPLING.max_response_tokens)
    engine = scripted_engine(lambda _, turn: "<think>t</think><answer>Right</answer>")
    session = engine.session(SAMPLING, contexts.stop_token_ids)
    episodes = (Episode("g0", 0, env_seed=SEED, dynamics_seed=0, sampling_seed=1),)
    turns = play(session, contexts, tokenizer, corridor(), AGENT, SAMPLING, 100_000, episodes).to_pylist()
    assert {row["status"] for row in turns} == {"format_error"}
    assert [row["executed_actions"] for row in turns] == [[]] * len(turns)
    prompt = tokenizer.decode(session.requests[1].prompt_ids)
    assert "Inside <think> always write: <observation>" in prompt
    assert "Your last response was invalid" in prompt
