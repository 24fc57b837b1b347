"""Trial turns: rows of `turns` from an environment without a policy, to try out what reads such rows.

environment, random actions -> LiveEpisode -> rows of every kind that a rollout can store
"""

from collections.abc import Iterator
from typing import Any, cast

import pyarrow as pa

from starpo.ragen.agents.prompting.context import ContextBuilder
from starpo.ragen.agents.prompting.parser import format_response
from starpo.ragen.agents.rollout.engine import Response
from starpo.ragen.agents.rollout.episode import Episode, LiveEpisode
from starpo.ragen.agents.rollout.loop import table_of
from starpo.ragen.config.agent import FORMS, AgentConfig
from starpo.ragen.core.seeding import python_random
from starpo.ragen.envs import make
from starpo.ragen.envs.base import EnvironmentSettings

_MAX_TURNS = 3
_THOUGHT = "I try this."


class _NoTokens:
    """Stands for a context builder and its contexts: prompts of one token."""

    prompt_ids = token_ids = (0,)
    images = ()

    def __init__(self, agent: AgentConfig) -> None:
        self.agent = agent

    def start(self, _: Any) -> "_NoTokens":
        return self

    def look(self, _: Any) -> None:
        pass

    def observe(self, *_: Any, **__: Any) -> "_NoTokens":
        return self

    def respond(self, _: Any) -> None:
        pass


def trial_turns(settings: EnvironmentSettings, agent: AgentConfig) -> pa.Table:
    """Play a group of three episodes in each part of an environment.

    Args:
        settings: Settings of the environment, of a mixture for instance.
        agent: Form and limits of the responses.

    Returns:
        Dataset `turns`: well-formed responses to random actions, a malformed one, a turn without a response because the
        context was full, and one because the environment failed. Prompts and responses have one token. The column `env`
        has environment types, as what rewards receive.
    """
    rows = [row for tag, part in settings.tagged().items() for row in _rows(tag, part, agent)]
    return table_of(rows)


def _rows(tag: str, settings: EnvironmentSettings, agent: AgentConfig) -> Iterator[dict[str, Any]]:
    contexts = cast(ContextBuilder, _NoTokens(agent))
    for member in range(3):
        environment = make(settings)
        rng = python_random("trial", tag, member)
        episode = LiveEpisode(Episode(f"trial-{tag}", member, 0, member, member), environment, contexts)
        for turn in range(_MAX_TURNS):
            if episode.is_over:
                break
            episode.prompt()
            is_well_formed = member < 2 and not (member == 1 and turn == 0)
            actions = [environment.random_action(rng)]
            text = format_response(_thought(agent), actions, agent, environment.grammar) if is_well_formed else ""
            episode.respond(Response([0], [-0.5], "stop"), text)
            if member == 2:
                break
        if not episode.is_over:
            status = "env_error" if member == 2 else "truncated"
            episode.end_without_response(status, {"error": "a trial"})
        yield from ({**row, "env": settings.type} for row in episode.rows)


def _thought(agent: AgentConfig) -> str:
    return "".join(f"<{name}>{_THOUGHT}</{name}>" for name in FORMS[agent.form]) or _THOUGHT
