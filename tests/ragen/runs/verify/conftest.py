"""Real episodes without a policy: responses are generated from a seed, well formed, malformed or cut off."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from transformers import PreTrainedTokenizerFast

from starpo.ragen.agents.policy.tokenizer import make_tokenizer
from starpo.ragen.agents.prompting.context import ContextBuilder
from starpo.ragen.agents.rollout.engine import Request, Response
from starpo.ragen.agents.rollout.loop import Episode, play
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.rollout import SamplingConfig
from starpo.ragen.core.seeding import dynamics_seed, python_random, sampling_seed
from starpo.ragen.envs import make
from starpo.ragen.envs.base import EnvironmentSettings
from starpo.schemas.datasets import TURNS


class ChattySession:
    """Session that answers at random, by the request's seed."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, stop_token: int, names: Sequence[str], limit: int) -> None:
        self._tokenizer, self._stop_token, self._names, self._limit = tokenizer, stop_token, names, limit

    def generate(self, requests: Sequence[Request]) -> list[Response]:
        return [self._answer(request) for request in requests]

    def close(self) -> None:
        """Do nothing."""

    def _answer(self, request: Request) -> Response:
        random = python_random(request.seed)
        actions = " || ".join(random.choice([*self._names, "Fly"]) for _ in range(random.randint(1, 4)))
        answer = f"<answer>{actions}</answer>"
        text = random.choice([f"<think>so</think>{answer}"] * 4 + [answer[:-3], answer * 30])
        ids = self._tokenizer.encode(text, add_special_tokens=False)
        is_cut = len(ids) >= self._limit
        ids = ids[: self._limit] if is_cut else [*ids, self._stop_token]
        return Response(ids, [-random.randrange(1024) / 512 for _ in ids], "length" if is_cut else "stop")


@dataclass(frozen=True)
class Played:
    """Rollout, with the settings, tokenizer and context builder that it was played with."""

    turns: pa.Table
    settings: EnvironmentSettings
    agent: AgentConfig
    tokenizer: PreTrainedTokenizerFast
    contexts: ContextBuilder

    def changed(self, row: int, **columns: Any) -> pa.Table:
        """Return the turns with some values of one row replaced."""
        rows = self.turns.to_pylist()
        rows[row] |= columns
        return pa.Table.from_pylist(rows, schema=TURNS.schema)


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    """Tokenizer of the tiny policy."""
    return make_tokenizer()


@pytest.fixture(scope="session")
def play_rollout(tokenizer: PreTrainedTokenizerFast) -> Callable[..., Played]:
    """`play_rollout(settings, agent, num_groups=3, group_size=4, max_context_tokens=4096) -> Played`."""

    def run(
        settings: EnvironmentSettings,
        agent: AgentConfig | None = None,
        num_groups: int = 3,
        group_size: int = 4,
        max_context_tokens: int = 4096,
    ) -> Played:
        agent = agent or AgentConfig(prompt="state", context="window")
        sampling = SamplingConfig(max_response_tokens=60)
        contexts = ContextBuilder(tokenizer, agent, sampling.max_response_tokens)
        environment = make(settings)
        environment.reset(seed=0)
        session = ChattySession(tokenizer, contexts.stop_token_ids[0], environment.actions, 60)
        episodes = [
            Episode(f"g{group}", member, group, dynamics_seed(group, member), sampling_seed(group, member))
            for group in range(num_groups)
            for member in range(group_size)
        ]
        turns = play(session, contexts, tokenizer, settings, agent, sampling, max_context_tokens, episodes)
        return Played(turns, settings, agent, tokenizer, contexts)

    return run
