"""Lengths of prompts, counted with the policy's own tokenizer and chat template.

environment, agent, tokenizer -> contexts of some initial states -> PromptLengths -> tokens that an episode needs
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.core.limits import environment_call
from starpo.ragen.envs import make
from starpo.ragen.envs.base import EnvironmentSettings

if TYPE_CHECKING:
    from starpo.ragen.agents.prompting.context import ContextBuilder

NUM_STATES = 16


@dataclass(frozen=True)
class PromptLengths:
    """Lengths of the prompts of some initial states, in tokens.

    Attributes:
        shortest: Shortest first prompt.
        longest: Longest first prompt.
        later: Longest addition of a second turn that shows the first observation again; 0 if an episode has one turn.
            The response before it is not counted. Observations that grow during an episode need more.
        num_states: Number of initial states.
        image: What the image of the first state takes; empty if prompts show none.
    """

    shortest: int
    longest: int
    later: int
    num_states: int
    image: str = ""

    def needed(self, agent: AgentConfig, max_response_tokens: int, num_turns: int) -> int:
        """Tokens of the context of turn `num_turns` with its response, if every response has its maximum length."""
        num_earlier = num_in_sight(agent, num_turns) - 1
        return self.longest + num_earlier * (self.later + max_response_tokens) + max_response_tokens

    def num_turns_within(self, agent: AgentConfig, max_response_tokens: int, max_tokens: int) -> int:
        """Number of turns, at most `agent.max_turns`, that surely fit into a context of `max_tokens`."""
        fitting = (n for n in range(agent.max_turns, 0, -1) if self.needed(agent, max_response_tokens, n) <= max_tokens)
        return next(fitting, 0)


def num_in_sight(agent: AgentConfig, num_turns: int) -> int:
    """Return how many turns the context of turn `num_turns` shows, itself included."""
    return num_turns if agent.context == "full" else min(num_turns, agent.window_turns)


def prompt_lengths(
    settings: EnvironmentSettings, contexts: "ContextBuilder", num_states: int = NUM_STATES
) -> PromptLengths:
    """Measure the prompts of the first `num_states` seeds.

    Raises:
        CallLimitError: If the environment hangs.
        Exception: Whatever it raises.
    """
    first, later, description = [], [0], ""
    for seed in range(num_states):
        world = make(settings)
        with environment_call(settings.type):
            observation, _ = world.reset(seed=seed)
        context = contexts.start(world)
        left = contexts.agent.max_actions
        image = None if world.plays else contexts.look(world)  # a program's images are its own
        description = description or contexts.describe(image)
        opening = context.observe(observation, actions_left=left, reward=None, had_invalid_action=False, image=image)
        first.append(len(opening.prompt_ids))
        if contexts.agent.max_turns > 1:
            context.respond(contexts.stop_token_ids[:1])
            context.observe(observation, actions_left=left, reward=-0.1, had_invalid_action=True, image=image)
            later.append(max(0, len(context.token_ids) - first[-1] - 1))
    return PromptLengths(min(first), max(first), max(later), num_states, description)
