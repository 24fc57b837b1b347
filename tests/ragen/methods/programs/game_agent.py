"""A program that plays a built-in game over the `openai` client, with messages and rules of its own keeping."""

import base64
import io
import json
import sys

import PIL.Image
from openai import OpenAI
from pydantic import TypeAdapter

from starpo.ragen.agents.prompting.forms import in_form, read_response
from starpo.ragen.agents.prompting.prompt import prompt_of
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.environment import EnvironmentConfig
from starpo.ragen.envs import make

task = json.load(sys.stdin)
agent = AgentConfig.model_validate(task["agent"])
game = make(TypeAdapter(EnvironmentConfig).validate_python(task["environment"]))
client = OpenAI()
prompt = in_form(prompt_of(agent), agent)
observation, _ = game.reset(seed=task["env_seed"], dynamics_seed=task["dynamics_seed"])
grammar, actions_left, reward, had_invalid_action, terminated, total = (
    game.grammar,
    agent.max_actions,
    None,
    False,
    False,
    0.0,
)
introduction = prompt.introduction(game.rules(), grammar, agent)


def with_picture(text):
    """Content that shows the game's picture where the text has 'PICTURE'."""
    file = io.BytesIO()
    PIL.Image.fromarray(game.render_rgb()).save(file, "PNG")
    url = f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
    before, after = text.split("PICTURE")
    picture = {"type": "image_url", "image_url": {"url": url}}
    return [{"type": "text", "text": before}, picture, {"type": "text", "text": after}]


messages = [{"role": "system", "content": agent.system_prompt}] if agent.system_prompt else []
rewards = []
for turn in range(agent.max_turns):
    text = prompt.turn_message(
        "PICTURE" if agent.shows_images else observation, turn=turn,
        actions_left=actions_left, reward=reward if agent.should_show_reward and turn else None,
        had_invalid_action=had_invalid_action, agent=agent, grammar=grammar, max_response_tokens=task["max_tokens"],
    )  # fmt: skip
    text = f"{introduction}\n\n{text}" if introduction and not turn else text
    messages.append({"role": "user", "content": with_picture(text) if agent.shows_images else text})
    choice = client.chat.completions.create(model="policy", messages=messages).choices[0]
    messages.append(choice.message.model_dump())
    parsed = read_response(choice.message.content, grammar=grammar, agent=agent)
    is_well_formed = parsed.format_ok and choice.finish_reason == "stop"
    executed, reward = 0, 0.0
    for action in parsed.known_prefix[: min(agent.max_actions_per_turn, actions_left)]:
        observation, paid, terminated, _, _ = game.step(action)
        executed, reward = executed + 1, reward + paid
        if terminated:
            break
    rewards.append(reward)
    forfeited = min(agent.max_actions_per_turn, actions_left) if not (is_well_formed or executed) else 0
    actions_left -= executed + forfeited
    had_invalid_action = not is_well_formed
    if terminated or not actions_left:
        break
print(json.dumps({"reward": sum(rewards), "success": game.is_success}))
