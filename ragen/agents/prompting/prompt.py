"""The text of user messages (RAGEN, environments).

Responsible for wording only, not for tokens or chat templates. The prompts of a trajectory are stored as token ids, so
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
    """Interface of the classes in `ragen.core.registry.PROMPTS`; stateless."""

    def introduction(self, rules: str, grammar: Grammar, agent: AgentConfig) -> str:
        """Return the text that opens every context; may be empty."""

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
        """Return the text of a turn's message."""


def prompt_of(agent: AgentConfig) -> Prompt:
    """Return the prompt that the settings name.

    Raises:
        RegistryError: If it cannot be loaded, or is not a prompt.
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
    """Prompt of the observation alone, for a policy whose warm start has taught it everything else."""

    def introduction(self, rules: str, grammar: Grammar, agent: AgentConfig) -> str:
        """Return the empty string."""
        return ""

    def turn_message(self, observation: str, **_: Any) -> str:
        """Return the observation."""
        return observation
