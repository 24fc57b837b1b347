"""The built-in prompt: rules, symbols, actions, actions left, format, response length (RAGEN, environments)."""

from starpo.ragen.agents.prompting.template_prompt import TemplatePrompt
from starpo.ragen.config.agent import AgentConfig

FULL_TEMPLATE = """\
{% block introduction %}
{{ rules }}

{{ actions }}
{% if agent.max_actions_per_turn > 1 and has_tools %}
Make up to {{ agent.max_actions_per_turn }} calls a turn, each in tags of its own.
{% elif agent.max_actions_per_turn > 1 and separator %}
Take up to {{ agent.max_actions_per_turn }} actions a turn, separated by {{ separator }}, \
as in: first action {{ separator }} second action
{% else %}
Take one action a turn.
{% endif %}
{% endblock %}
{% block turn %}
{% if reward is not none %}
Reward: {{ "%g" | format(reward) }}

{% endif %}
Turn {{ turn }}:
State:
{{ observation }}
{% if had_invalid_action %}
Your last response was invalid: it broke the output form or named an unknown action. Please follow the form.
{% endif %}
You have {{ actions_left }} action{{ "" if actions_left == 1 else "s" }} left.
Always output: {% if agent.should_think %}<think>your reasoning</think>{% endif %}\
<{{ tag }}>{{ example }}{{ "s" if agent.max_actions_per_turn > 1 and separator }}</{{ tag }}> \
with nothing outside the tags.
Max response length: {{ max_response_tokens }} tokens.
{% endblock %}
"""
"""A constant, so that it is part of every key, as code selected by a setting is; `starpo new prompt` writes it."""


class FullPrompt(TemplatePrompt):
    """Prompt with everything that the paper's prompt contains."""

    def template(self, agent: AgentConfig) -> str:
        """Return the built-in template."""
        return FULL_TEMPLATE
