"""Prompts rendered from a user's template."""

import pytest
from pydantic import ValidationError

from starpo.flows.cli.new import prompt
from starpo.ragen.agents.prompting.prompt import prompt_of
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.envs.grammar import Names

NAMES = Names(("Up", "Down"))
TEXT = """{% block introduction %}
{{ rules }}
{{ actions }}
{% endblock %}
{% block turn %}
Turn {{ turn }} of {{ agent.max_turns }}: {{ observation }}
{% if reward is not none %}You earned {{ reward }}.
{% endif %}
{% endblock %}
"""


def turn_message(text: str, **changes: object) -> str:
    agent = AgentConfig(prompt="template", prompt_template=text)
    facts = {"turn": 0, "actions_left": 3, "reward": None, "had_invalid_action": False, "max_response_tokens": 9}
    return prompt_of(agent).turn_message("P {{ rules }}", agent=agent, grammar=NAMES, **(facts | changes))


def test_blocks_rendered_observations_not():
    agent = AgentConfig(prompt="template", prompt_template=TEXT)
    assert prompt_of(agent).introduction(" Walk.\n", NAMES, agent) == "Walk.\nYour available actions are: Up, Down"
    assert turn_message(TEXT) == "Turn 1 of 5: P {{ rules }}"
    assert turn_message(TEXT, turn=1, reward=-0.0) == "Turn 2 of 5: P {{ rules }}\nYou earned 0.0."


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{% block turn %}{% endblock %}", "no block 'introduction'"),
        (TEXT.replace("{{ turn }}", "{{ trun }}"), "'trun' is undefined; available: observation, turn"),
        (
            TEXT.replace("earned {{ reward }}", "earned {{ rewrad }}"),
            "'rewrad' is undefined; available: observation, turn",
        ),
        (TEXT + "\n{% if %}", "line 11"),
        (TEXT.replace("{{ turn }}", "{{ turn.__class__.__mro__ }}"), "unsafe"),
    ],
)
def test_unrenderable_template_says_where(text, message):
    with pytest.raises(ConfigError, match=message):
        turn_message(text)


def test_templates_own_names_are_known():
    text = TEXT.replace(
        "{% endif %}\n{% endblock %}", "{% endif %}{% for n in range(2) %}{{ loop.index + n }}{% endfor %}"
    )
    text += "{% set left = actions_left %}{% macro say(x) %}<{{ x }}>{% endmacro %}{{ say(left) }}{% endblock %}"
    assert turn_message(text) == "Turn 1 of 5: P {{ rules }}\n13<3>"


def test_prompt_and_template_go_together():
    with pytest.raises(ValidationError, match="set prompt = 'template'"):
        AgentConfig(prompt_template=TEXT)
    with pytest.raises(ValidationError, match="name a file"):
        AgentConfig(prompt="template")


def test_built_in_prompt_can_be_edited(tmp_path):
    file = tmp_path / "deep" / "mine.jinja"
    prompt(file)
    agents = AgentConfig(), AgentConfig(prompt="template", prompt_template=str(file))
    introductions = [prompt_of(agent).introduction("Walk.", NAMES, agent) for agent in agents]
    assert introductions[0] == introductions[1]
    file.write_text(file.read_text().replace("State:", "You see:"))
    assert "You see:\nP {{ rules }}" in turn_message(str(file))
    with pytest.raises(ConfigError, match="already exists"):
        prompt(file)
    with pytest.raises(ConfigError, match=r"ends in \.jinja"):
        prompt(tmp_path / "mine.txt")
