"""Shards played in this process by one engine, whose sessions run in threads."""

import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from threading import Event, Lock

import numpy as np
import polars as pl
import pyarrow as pa
from transformers import PreTrainedTokenizerBase

from starpo.ragen.agents.policy.load import load_tokenizer
from starpo.ragen.agents.prompting.context import ContextBuilder
from starpo.ragen.agents.rollout.costs import take_usage, total, with_usage
from starpo.ragen.agents.rollout.engine import Request, Response, RolloutEngine, StreamingSession
from starpo.ragen.agents.rollout.episode import UNKNOWN_DIGEST, Episode
from starpo.ragen.agents.rollout.job import RolloutJob
from starpo.ragen.agents.rollout.loop import loop_of
from starpo.ragen.agents.rollout.siblings import with_siblings
from starpo.ragen.agents.rollout.stream import as_stream
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.core.errors import EngineError
from starpo.ragen.core.lookup import load
from starpo.ragen.core.registry import SEARCHES


class LocalPlayer:
    """Implements `ragen.agents.rollout.shards.ShardPlayer`; for a single job, since a stopped player stays stopped.

    Attributes:
        on_responses: Called with the number of responses so far whenever some have ended; None: not called.
    """

    on_responses: Callable[[int], None] | None = None

    def __init__(self, engine: RolloutEngine, num_workers: int = 1) -> None:
        """Wrap an engine; `play` loads the job's checkpoint into it."""
        self.num_workers = num_workers
        self.is_continuous = engine.is_continuous
        self._engine = engine
        self._stop = Event()
        self._num_responses, self._counting = 0, Lock()

    def play(self, job: RolloutJob, episodes: Sequence[Episode]) -> pa.Table:
        """See `ShardPlayer.play`."""
        self._engine.load(job.folder, job.checkpoint_key)
        tokenizer, contexts = _contexts(job.folder, job.agent, job.sampling.max_response_tokens)
        tables = []
        stop_at = None if job.deadline_s is None else time.monotonic() + job.deadline_s
        for is_greedy in (False, True):
            batch = [episode for episode in episodes if episode.is_greedy == is_greedy]
            if batch or not is_greedy:
                left_s = None if stop_at is None else max(0.0, stop_at - time.monotonic())
                tables.append(self._play(job, tokenizer, contexts, batch, is_greedy, left_s))
        return tables[0] if len(tables) == 1 else _together(tables, episodes)

    def _play(
        self,
        job: RolloutJob,
        tokenizer: PreTrainedTokenizerBase,
        contexts: ContextBuilder,
        episodes: Sequence[Episode],
        is_greedy: bool,
        deadline_s: float | None,
    ) -> pa.Table:
        sampling = job.sampling.model_copy(update={"temperature": 0.0}) if is_greedy else job.sampling
        stream = as_stream(self._engine.session(sampling, contexts.stop_token_ids))
        session = _Stoppable(stream, self._stop, self._count)
        place = (session, contexts, tokenizer, job.environment, job.agent, sampling, job.max_context_tokens, episodes)
        play = loop_of(job.environment)
        try:
            if job.search is None:
                turns = play(*place, deadline_s)
            elif is_greedy:
                turns = with_siblings(play(*place, deadline_s))
            else:
                turns = load(SEARCHES, job.search.type)(*place, job.search, deadline_s)
                if not (isinstance(turns, pa.Table) and turns.schema.equals(job.schema)):
                    raise EngineError(
                        f"search '{job.search.type}' returned {type(turns).__name__}; expected a table of `turns` with "
                        "each turn's candidates (docs/extend.md)"
                    )
            return with_usage(turns, session.usage())
        finally:
            session.close()

    def stop(self) -> None:
        """See `ShardPlayer.stop`."""
        self._stop.set()

    def _count(self, number: int) -> None:
        if self.on_responses is not None:
            with self._counting:
                self._num_responses += number
                self.on_responses(self._num_responses)


def _together(tables: Sequence[pa.Table], episodes: Sequence[Episode]) -> pa.Table:
    """Combine the rows of several tables in the order of the episodes, with one initial-state digest per group."""
    parts, usages = zip(*map(take_usage, tables), strict=True)
    turns = _with_known_states(pa.concat_tables(parts))
    order = {episode.trajectory_id: index for index, episode in enumerate(episodes)}
    places = np.array([order[name] for name in turns["trajectory_id"].to_pylist()])
    return with_usage(turns.take(np.argsort(places, kind="stable")), total(usages))


def _with_known_states(turns: pa.Table) -> pa.Table:
    """Give members whose reset failed the digest that others of their group observed, greedy or sampled."""
    name = "initial_state_digest"
    known_digest = pl.col(name).filter(pl.col(name) != UNKNOWN_DIGEST).first().over("group_id")
    digests = pl.DataFrame(turns.select(["group_id", name])).select(
        pl.when(pl.col(name) == UNKNOWN_DIGEST).then(known_digest.fill_null(UNKNOWN_DIGEST)).otherwise(pl.col(name))
    )
    at = turns.schema.get_field_index(name)
    return turns.set_column(at, turns.schema.field(at), digests.to_arrow().column(0).cast(turns.schema.field(at).type))


@lru_cache(maxsize=2)
def _contexts(
    folder: str, agent: AgentConfig, max_response_tokens: int
) -> tuple[PreTrainedTokenizerBase, ContextBuilder]:
    tokenizer = load_tokenizer(folder)
    return tokenizer, ContextBuilder(tokenizer, agent, max_response_tokens)


class _Stoppable:
    """A session that raises once the rollout is being stopped, and reports how many responses have ended."""

    def __init__(self, session: StreamingSession, stop: Event, count: Callable[[int], None]) -> None:
        self._session = session
        self._stop = stop
        self._count = count

    def submit(self, requests: Sequence[Request]) -> None:
        self._check_not_stopped()
        self._session.submit(requests)

    def finished(self) -> list[tuple[str, Response]]:
        self._check_not_stopped()
        finished = self._session.finished()
        self._count(len(finished))
        return finished

    def _check_not_stopped(self) -> None:
        if self._stop.is_set():
            raise EngineError("another shard has failed, so this one was stopped")

    def usage(self) -> dict[str, float]:
        return self._session.usage()

    def close(self) -> None:
        self._session.close()
