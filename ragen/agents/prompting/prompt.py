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
from starpo.ragen.envs.grammar import Grammar


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


class StatePrompt:
    """The observation alone, for a policy whose warm start has taught it everything else."""

    def introduction(self, rules: str, grammar: Grammar, agent: AgentConfig) -> str:
        """Nothing."""
        return ""

    def turn_message(self, observation: str, **_: Any) -> str:
        """The observation."""
        return observation
