"""A prompt from a Jinja template: block `introduction` opens every context, block `turn` is the message of a turn.

template, variables of a turn -> text of a user message
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from jinja2 import StrictUndefined, Template, TemplateError, meta, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.envs.grammar import Grammar, ToolCalls

_BLOCKS = ("introduction", "turn")


class TemplatePrompt:
    """Renders the blocks of `agent.prompt_template`; undefined names are rejected."""

    def template(self, agent: AgentConfig) -> str:
        """Return the template whose blocks are rendered."""
        return agent.prompt_template

    def introduction(self, rules: str, grammar: Grammar, agent: AgentConfig) -> str:
        """Render the block `introduction`, with the variables `rules`, `actions` (described by the grammar),
        `has_tools` (whether actions are tool calls), `separator` (none if a turn takes one action) and `agent`.

        Raises:
            ConfigError: If the template cannot be read or rendered.
        """
        return self._render(
            "introduction",
            agent,
            rules=rules.strip(),
            actions=grammar.describe(),
            has_tools=isinstance(grammar, ToolCalls),
            separator=grammar.separator,
        )

    def turn_message(
        self,
        observation: str,
        *,
        turn: int,
        reward: float | None,
        agent: AgentConfig,
        grammar: Grammar,
        **variables: Any,
    ) -> str:
        """Render the block `turn`, with the variables `observation`, `turn` (from 1), `actions_left`, `reward` (none if
        it is not to be shown), `had_invalid_action`, `max_response_tokens`, `tag`, `example` and `separator` (of the
        answer) and `agent`.

        Raises:
            ConfigError: If the template cannot be read or rendered.
        """
        return self._render(
            "turn",
            agent,
            observation=observation,
            turn=turn + 1,
            reward=None if reward is None else reward + 0.0,
            **variables,
            tag=grammar.tag,
            example=grammar.example,
            separator=grammar.separator,
        )

    def _render(self, block: str, agent: AgentConfig, **known: Any) -> str:
        template, names = _compile(self.template(agent))
        available = f"available: {', '.join(known)}, agent"
        if strange := sorted(names[block] - known.keys() - {"agent"}):
            raise ConfigError(f"agent.prompt_template, block {block}: '{strange[0]}' is undefined; {available}")
        try:
            context = template.new_context({**known, "agent": agent.model_dump()})
            return "".join(template.blocks[block](context)).strip("\n")
        except (TemplateError, TypeError, ValueError) as error:
            raise ConfigError(f"agent.prompt_template, block {block}: {error}; {available}") from error


@lru_cache(maxsize=8)
def _compile(text: str) -> tuple[Template, Mapping[str, set[str]]]:
    """Compile a template, and find the variables that each block uses, including branches that are rarely rendered."""
    environment = ImmutableSandboxedEnvironment(undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    try:
        template = environment.from_string(text)
    except TemplateError as error:
        line = getattr(error, "lineno", None)
        raise ConfigError(f"agent.prompt_template{f', line {line}' if line else ''}: {error}") from error
    missing = [block for block in _BLOCKS if block not in template.blocks]
    if missing:
        raise ConfigError(
            f"agent.prompt_template has no block '{missing[0]}': write {{% block {missing[0]} %}}...{{% endblock %}}"
        )
    blocks = environment.parse(text).find_all(nodes.Block)
    alone = {block.name: nodes.Template([block], lineno=1, environment=environment) for block in blocks}
    return template, {name: meta.find_undeclared_variables(block) for name, block in alone.items()}
