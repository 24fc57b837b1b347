"""Shards: whole groups that are generated together, the unit in which a rollout is split among threads.

    groups -> make_episodes -> shards -> play_groups (threads, one session each) -> rows of `turns` in shard order

The same shard gives the same rows, whichever thread plays it and whatever else is played.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from threading import Event

import pyarrow as pa
from transformers import PreTrainedTokenizerBase

from ragen import seeding
from ragen.agent.context import ContextBuilder
from ragen.config.agent import AgentConfig
from ragen.config.rollout import SamplingConfig
from ragen.envs.base import EnvironmentSettings
from ragen.errors import ConfigError, EngineError
from ragen.rollout.engine import Request, Response, RolloutEngine, RolloutSession
from ragen.rollout.episode import Episode
from ragen.rollout.loop import play
from schemas.datasets import TURNS


def make_episodes(groups: Sequence[tuple[str, int]], group_size: int, shard_groups: int) -> list[list[Episode]]:
    """Seed the members of every group and deal whole groups to shards, in order.

    Args:
        groups: (group_id, env_seed) of each group.
        group_size: N, members of a group.
        shard_groups: Groups of a shard; the last shard may have fewer.

    Returns:
        Shards of episodes, members of a group one after another. Seeds depend on a group's `env_seed` and the member
        alone, so no other group, shard size or earlier run moves them.
    """
    members = [
        [
            Episode(
                group_id=group_id,
                member=member,
                env_seed=env_seed,
                dynamics_seed=seeding.dynamics_seed(env_seed, member),
                sampling_seed=seeding.sampling_seed(env_seed, member),
            )
            for member in range(group_size)
        ]
        for group_id, env_seed in groups
    ]
    return [
        [episode for group in members[first : first + shard_groups] for episode in group]
        for first in range(0, len(members), shard_groups)
    ]


def play_groups(
    engine: RolloutEngine,
    tokenizer: PreTrainedTokenizerBase,
    environment: EnvironmentSettings,
    agent: AgentConfig,
    sampling: SamplingConfig,
    max_context_tokens: int,
    shards: Sequence[Sequence[Episode]],
    deadline_s: float | None,
    num_workers: int,
    on_shard: Callable[[int, int], None] | None = None,
) -> pa.Table:
    """Play shards side by side.

    Args:
        engine: A loaded policy.
        tokenizer: The policy's.
        environment: Settings of the environment that is played.
        agent: How observations become prompts and responses become actions.
        sampling: How tokens are drawn.
        max_context_tokens: Prompt and response together.
        shards: From `make_episodes`.
        deadline_s: Wall-clock limit of each shard, from when it begins; None: no limit.
        num_workers: Threads.
        on_shard: Called in this thread after each shard with the number of shards done and of all.

    Returns:
        Dataset `turns`, rows in shard order whatever order they end in. No shards: no rows.

    Raises:
        TemplateError: If turns cannot be appended to the tokenizer's chat template.
        ConfigError: If no episode of a shard has room for even its first response.
        EngineError: If a shard fails; the others stop at their next call of the engine. The message names the shard.
    """
    contexts = ContextBuilder(tokenizer, agent, sampling.max_response_tokens)
    stop = Event()

    def play_shard(episodes: Sequence[Episode]) -> pa.Table:
        session = _StoppableSession(engine.session(sampling, contexts.stop_token_ids), stop)
        try:
            return play(
                session, contexts, tokenizer, environment, agent, sampling, max_context_tokens, episodes, deadline_s
            )
        finally:
            session.close()

    with ThreadPoolExecutor(num_workers, thread_name_prefix="shard") as pool:
        futures = {pool.submit(play_shard, episodes): index for index, episodes in enumerate(shards)}
        tables = [TURNS.schema.empty_table() for _ in shards]
        try:
            for done, future in enumerate(as_completed(futures), start=1):
                index = futures[future]
                try:
                    tables[index] = future.result()
                except ConfigError:
                    raise
                except Exception as error:
                    groups = list(dict.fromkeys(episode.group_id for episode in shards[index]))
                    raise EngineError(
                        f"rollout shard {index + 1} of {len(shards)} (groups {groups[0]} to {groups[-1]}) failed: "
                        f"{type(error).__name__}: {error}"
                    ) from error
                if on_shard is not None:
                    on_shard(done, len(shards))
        except BaseException:
            # Also on an interrupt from the keyboard: leaving the pool waits for its threads.
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return pa.concat_tables([TURNS.schema.empty_table(), *tables])


class _StoppedError(EngineError):
    """Another shard has failed, so this one need not go on."""


class _StoppableSession:
    """A session that refuses to generate once the rollout is being stopped."""

    def __init__(self, session: RolloutSession, stop: Event) -> None:
        self._session = session
        self._stop = stop

    def generate(self, requests: Sequence[Request]) -> list[Response]:
        if self._stop.is_set():
            raise _StoppedError("the rollout is being stopped")
        return self._session.generate(requests)

    def close(self) -> None:
        self._session.close()
