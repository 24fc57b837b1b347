"""The wording of prompts, as golden texts: a change here changes what every policy sees."""

import pytest

from starpo.ragen.agents.prompting.full_prompt import FullPrompt
from starpo.ragen.agents.prompting.prompt import prompt_of
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.envs.grammar import FreeText, Names, Tool, ToolCalls

NAMES = Names(("Up", "Down"))
RULES = "Push every box onto a target.\nP = player, X = box, O = target.\n"


def message(agent: AgentConfig, **changes) -> str:
    facts = {"turn": 0, "actions_left": 10, "reward": None, "had_invalid_action": False, "max_response_tokens": 400}
    return prompt_of(agent).turn_message("P X O\n_ _ _", agent=agent, grammar=NAMES, **(facts | changes))


def test_introduction_states_rules_actions_and_limits():
    assert FullPrompt().introduction(RULES, NAMES, AgentConfig(max_actions_per_turn=3)) == (
        "Push every box onto a target.\n"
        "P = player, X = box, O = target.\n"
        "\n"
        "Your available actions are: Up, Down\n"
        "Take up to 3 actions a turn, separated by ||, as in: first action || second action"
    )


def test_first_turn():
    assert message(AgentConfig()) == (
        "Turn 1:\n"
        "State:\n"
        "P X O\n"
        "_ _ _\n"
        "You have 10 actions left.\n"
        "Always output: <think>your reasoning</think><answer>your actions</answer> with nothing outside the tags.\n"
        "Max response length: 400 tokens."
    )


def test_later_turn_with_reward_and_warning():
    changes = {"turn": 2, "actions_left": 1, "reward": -0.1 - 0.1 - 0.1, "had_invalid_action": True}
    assert message(AgentConfig(), **changes) == (
        "Reward: -0.3\n"
        "\n"
        "Turn 3:\n"
        "State:\n"
        "P X O\n"
        "_ _ _\n"
        "Your last response was invalid: it broke the output form or named an unknown action. Please follow the form.\n"
        "You have 1 action left.\n"
        "Always output: <think>your reasoning</think><answer>your actions</answer> with nothing outside the tags.\n"
        "Max response length: 400 tokens."
    )


def test_no_thinking_form_is_answer_only():
    text = message(AgentConfig(should_think=False, max_actions_per_turn=1))
    assert "Always output: <answer>your action</answer> with nothing outside the tags." in text
    assert "think" not in text


def test_prompt_state_is_the_observation_alone():
    agent = AgentConfig(prompt="state")
    assert message(agent, turn=3, reward=-1.0, had_invalid_action=True) == "P X O\n_ _ _"


@pytest.mark.parametrize(("reward", "shown"), [(0.0, "0"), (-0.0, "0"), (10.9, "10.9"), (0.1 + 0.2, "0.3"), (-1, "-1")])
def test_rewards_are_shown_without_rounding_noise(reward, shown):
    assert message(AgentConfig(), reward=reward).startswith(f"Reward: {shown}\n")


CALLS = ToolCalls((Tool("search", "Finds pages.", {"type": "object", "properties": {"query": {"type": "string"}}}),))


def test_tools_described_with_call_form():
    assert (
        FullPrompt()
        .introduction(RULES, CALLS, AgentConfig(max_actions_per_turn=2))
        .endswith(
            "You act by calling one of these tools:\n- search(query): Finds pages.\n"
            "Make up to 2 calls a turn, each in tags of its own."
        )
    )
    agent = AgentConfig()
    message = prompt_of(agent).turn_message(
        "s", turn=0, actions_left=1, reward=None, had_invalid_action=False, agent=agent, grammar=CALLS,
        max_response_tokens=9,
    )  # fmt: skip
    assert '<think>your reasoning</think><tool_call>{"name": "tool", "arguments": {...}}</tool_call> with' in message


def test_free_text_has_one_action():
    introduction = FullPrompt().introduction(
        RULES, FreeText("Answer in words.", 80), AgentConfig(max_actions_per_turn=5)
    )
    assert introduction.endswith("Answer in words.\nAt most 80 characters.\nTake one action a turn.")
