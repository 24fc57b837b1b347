"""Shards played in this process by one engine: its sessions run in threads."""

from collections.abc import Sequence
from functools import lru_cache
from threading import Event

import pyarrow as pa
from transformers import PreTrainedTokenizerBase

from starpo.ragen.agents.policy.load import load_tokenizer
from starpo.ragen.agents.prompting.context import ContextBuilder
from starpo.ragen.agents.rollout.costs import with_usage
from starpo.ragen.agents.rollout.engine import Request, Response, RolloutEngine, StreamingSession
from starpo.ragen.agents.rollout.episode import Episode
from starpo.ragen.agents.rollout.job import RolloutJob
from starpo.ragen.agents.rollout.loop import play
from starpo.ragen.agents.rollout.stream import as_stream
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.core.errors import EngineError


class LocalPlayer:
    """Implements `ragen.agents.rollout.shards.ShardPlayer`; for one job, since what was stopped stays stopped."""

    def __init__(self, engine: RolloutEngine, num_workers: int = 1) -> None:
        """Take an engine into use; `play` brings it to the job's checkpoint."""
        self.num_workers = num_workers
        self.is_continuous = engine.is_continuous
        self._engine = engine
        self._stop = Event()

    def play(self, job: RolloutJob, episodes: Sequence[Episode]) -> pa.Table:
        """See `ShardPlayer.play`."""
        self._engine.load(job.folder, job.checkpoint_key)
        tokenizer, contexts = _contexts(job.folder, job.agent, job.sampling.max_response_tokens)
        session = _Stoppable(as_stream(self._engine.session(job.sampling, contexts.stop_token_ids)), self._stop)
        try:
            turns = play(
                session,
                contexts,
                tokenizer,
                job.environment,
                job.agent,
                job.sampling,
                job.max_context_tokens,
                episodes,
                job.deadline_s,
            )
            return with_usage(turns, session.usage())
        finally:
            session.close()

    def stop(self) -> None:
        """See `ShardPlayer.stop`."""
        self._stop.set()


@lru_cache(maxsize=2)
def _contexts(
    folder: str, agent: AgentConfig, max_response_tokens: int
) -> tuple[PreTrainedTokenizerBase, ContextBuilder]:
    tokenizer = load_tokenizer(folder)
    return tokenizer, ContextBuilder(tokenizer, agent, max_response_tokens)


class _Stoppable:
    """A session that goes no further once the rollout is being stopped."""

    def __init__(self, session: StreamingSession, stop: Event) -> None:
        self._session = session
        self._stop = stop

    def submit(self, requests: Sequence[Request]) -> None:
        self._session.submit(requests)

    def finished(self) -> list[tuple[str, Response]]:
        if self._stop.is_set():
            raise EngineError("another shard has failed, so this one was stopped")
        return self._session.finished()

    def usage(self) -> dict[str, float]:
        return self._session.usage()

    def close(self) -> None:
        self._session.close()
