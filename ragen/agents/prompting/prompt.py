"""The text of user messages: what the agent is told (RAGEN, environments).

Owns wording only: knows no tokens and no chat template. Whatever a trajectory was told is stored as token ids, so
sampling and training cannot see different prompts.

    environment's rules and observation -> text of a user message -> `context`
"""

from typing import Any, Protocol

from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.core.errors import RegistryError
from starpo.ragen.core.lookup import load
from starpo.ragen.core.registry import PROMPTS
from starpo.ragen.envs.grammar import Grammar, ToolCalls

_INVALID_ACTION_WARNING = (
    "Your last response was invalid: it broke the output form or named an unknown action. Please follow the form."
)


class Prompt(Protocol):
    """What a name in `ragen.core.registry.PROMPTS` stands for: a class of this form, without state."""

    def introduction(self, rules: str, grammar: Grammar, agent: AgentConfig) -> str:
        """What opens every context; "": nothing does."""

    def turn_message(
        self,
        observation: str,
        *,
        turn: int,
        actions_left: int,
        reward: float | None,
        had_invalid_action: bool,
        agent: AgentConfig,
        grammar: Grammar,
        max_response_tokens: int,
    ) -> str:
        """What a turn tells."""


def prompt_of(agent: AgentConfig) -> Prompt:
    """The prompt that the settings name.

    Raises:
        RegistryError: If it cannot be loaded, or is no prompt.
    """
    made = load(PROMPTS, agent.prompt)
    if isinstance(made, type) and all(callable(getattr(made, name, None)) for name in ("introduction", "turn_message")):
        prompt: Prompt = made()
        return prompt
    raise RegistryError(
        f"prompt '{agent.prompt}' ({PROMPTS[agent.prompt]}) is {made!r}; expected a class with the methods of "
        "starpo.ragen.agents.prompting.prompt.Prompt"
    )


class FullPrompt:
    """Rules, symbols, actions, actions left, format, response length, as in the paper (RAGEN, environments)."""

    def introduction(self, rules: str, grammar: Grammar, agent: AgentConfig) -> str:
        """What opens every context: the rules, the actions, and how to name several of them.

        Args:
            rules: The environment's rules and the meaning of its symbols.
            grammar: Of the actions.
            agent: Gives the number of actions a turn.
        """
        most, separator = agent.max_actions_per_turn, grammar.separator
        if most > 1 and isinstance(grammar, ToolCalls):
            allowance = f"Make up to {most} calls a turn, each in tags of its own."
        elif most > 1 and separator is not None:
            allowance = (
                f"Take up to {most} actions a turn, separated by {separator}, "
                f"as in: first action {separator} second action"
            )
        else:
            allowance = "Take one action a turn."
        return f"{rules.strip()}\n\n{grammar.told()}\n{allowance}"

    def turn_message(
        self,
        observation: str,
        *,
        turn: int,
        actions_left: int,
        reward: float | None,
        had_invalid_action: bool,
        agent: AgentConfig,
        grammar: Grammar,
        max_response_tokens: int,
    ) -> str:
        """What a turn tells: the state and, everything else that RAGEN lists for it.

        Args:
            observation: What the environment shows.
            turn: Index in the trajectory, from 0; shown from 1.
            actions_left: Actions that may still be taken.
            reward: The environment's reward of the turn before; None: do not show it.
            had_invalid_action: Was the response before this one malformed?
            agent: Which prompt, and the output form.
            grammar: Of the actions.
            max_response_tokens: Longest response.
        """
        lines = []
        if reward is not None:
            lines += [f"Reward: {reward + 0.0:g}", ""]  # + 0.0 turns -0.0 into 0.0
        lines += [f"Turn {turn + 1}:", "State:", observation]
        if had_invalid_action:
            lines.append(_INVALID_ACTION_WARNING)
        lines.append(f"You have {actions_left} action{'' if actions_left == 1 else 's'} left.")
        lines.append(f"Always output: {_output_form(agent, grammar)} with nothing outside the tags.")
        lines.append(f"Max response length: {max_response_tokens} tokens.")
        return "\n".join(lines)


class StatePrompt:
    """The observation alone, for a policy whose warm start has taught it everything else."""

    def introduction(self, rules: str, grammar: Grammar, agent: AgentConfig) -> str:
        """Nothing."""
        return ""

    def turn_message(self, observation: str, **_: Any) -> str:
        """The observation."""
        return observation


def _output_form(agent: AgentConfig, grammar: Grammar) -> str:
    said = grammar.example
    if agent.max_actions_per_turn > 1 and grammar.separator is not None:
        said += "s"
    answer = f"<{grammar.tag}>{said}</{grammar.tag}>"
    return f"<think>your reasoning</think>{answer}" if agent.should_think else answer
