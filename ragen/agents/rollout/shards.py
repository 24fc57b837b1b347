"""Shards: whole groups that are generated together, the unit in which a rollout is split among workers.

    groups -> make_episodes -> shards -> play_shards (a thread each, which plays or waits for a worker) -> `turns`

The same shard gives the same rows, whichever worker plays it and whatever else is played.
"""

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cache
from typing import Protocol

import polars as pl
import pyarrow as pa

from starpo.ragen.agents.rollout.costs import take_usage, total, with_usage
from starpo.ragen.agents.rollout.episode import Episode, describe_error
from starpo.ragen.agents.rollout.job import RolloutJob
from starpo.ragen.config.engine import Merging
from starpo.ragen.core import seeding
from starpo.ragen.core.errors import ConfigError, EngineError, EnvironmentFault
from starpo.ragen.core.guard import interrupt_overdue_calls, overdue_call
from starpo.ragen.envs.make import environment_type

_log = logging.getLogger(__name__)

MAX_ERROR_SHARE = 0.5
"""Largest share of trajectories that may end by an error of the environment. What is trained on is a biased sample of
episodes if many fail, and shows nothing if all do that act."""

_LARGE = Merging()


class _HungError(EngineError):
    """A call in this process does not return, so its thread cannot be waited for."""


class ShardPlayer(Protocol):
    """Plays shards, several at a time, in this process or in others."""

    num_workers: int
    """Number of shards that it plays concurrently."""
    is_continuous: bool
    """Whether its engine batches all requests in flight; `play_shards` then gives each worker a single large shard."""

    def play(self, job: RolloutJob, episodes: Sequence[Episode]) -> pa.Table:
        """Play one shard to its end and return dataset `turns`. May be called by many threads at once.

        Raises:
            StarPOError: If it cannot be played.
        """

    def stop(self) -> None:
        """Make the shards in play fail soon; their results are no longer needed."""


class ShardKeeper(Protocol):
    """Keeps finished shards, so that work that is interrupted need not play them again."""

    def recall(self, shards: Sequence[Sequence[Episode]]) -> dict[int, pa.Table]:
        """Return index -> rows of the shards that an earlier attempt at the same work has finished."""

    def keep(self, episodes: Sequence[Episode], turns: pa.Table) -> None:
        """Take a shard that has just ended."""


def make_episodes(
    groups: Sequence[tuple[str, int]], group_size: int, shard_groups: int, batch: int = 0, num_greedy: int = 0
) -> list[list[Episode]]:
    """Seed the members of every group and distribute whole groups over shards, in order.

    Args:
        groups: (group_id, env_seed) of each group.
        group_size: N, members per group.
        shard_groups: Groups per shard; the last shard may have fewer.
        batch: The members of batch b get the seeds of members b * N, b * N + 1, ... of larger groups.
        num_greedy: Number of additional members, after the N others, that are played greedily.

    Returns:
        Shards of episodes, members of a group one after another. Seeds depend only on a group's `env_seed` and the
        member, and not on other groups, shard size or earlier runs.
    """
    members = [
        [
            Episode(
                group_id=group_id,
                member=member,
                env_seed=env_seed,
                dynamics_seed=seeding.dynamics_seed(env_seed, batch * group_size + member),
                sampling_seed=seeding.sampling_seed(env_seed, batch * group_size + member),
                is_greedy=member >= group_size,
            )
            for member in range(group_size + num_greedy)
        ]
        for group_id, env_seed in groups
    ]
    return [
        [episode for group in members[first : first + shard_groups] for episode in group]
        for first in range(0, len(members), shard_groups)
    ]


def play_shards(
    player: ShardPlayer,
    job: RolloutJob,
    shards: Sequence[Sequence[Episode]],
    on_shard: Callable[[int, int], None] | None = None,
    on_turns: Callable[[pa.Table], None] | None = None,
    keeper: ShardKeeper | None = None,
    merging: Merging = _LARGE,
) -> pa.Table:
    """Play shards concurrently. For a continuous player, they are merged into larger ones.

    Args:
        player: Plays the shards.
        job: Policy, environment and settings.
        shards: From `make_episodes`.
        on_shard: Called in this thread after each shard with the number of finished shards and the total.
        on_turns: Called with all turns before they are checked, which may show why these checks fail.
        keeper: Has the shards that need not be played, and is given those that have been. One in which more than
            `MAX_ERROR_SHARE` of the trajectories failed is not kept: its cause may be mended.
        merging: How shards are merged for a continuous player.

    Returns:
        Dataset `turns`, rows in shard order whatever order they finish in, with their `usage` as metadata and, if the
        job uses search, each turn's siblings, or if it shows images, each turn's images. Empty without shards.

    Raises:
        ConfigError: If no episode of any shard has room for even its first response.
        EngineError: If a shard fails; the others are stopped. The message names the shard.
        EnvironmentFault: If more than `MAX_ERROR_SHARE` of the trajectories that acted ended by its error.
    """
    num_at_once = player.num_workers
    if player.is_continuous:
        num_at_once = max(num_at_once, merging.num_at_once)
        shards = _dealt(shards, num_at_once, merging.num_episodes)
    schema = job.schema
    tables = [schema.empty_table() for _ in shards]
    recalled = keeper.recall(shards) if keeper is not None else {}
    for index, rows in recalled.items():
        tables[index] = rows
    if recalled and on_shard is not None:
        on_shard(len(recalled), len(shards))
    pool = ThreadPoolExecutor(num_at_once, thread_name_prefix="shard")
    futures = {
        pool.submit(player.play, job, episodes): index for index, episodes in enumerate(shards) if index not in recalled
    }
    try:
        for done, future in enumerate(_completed(futures), start=len(recalled) + 1):
            index = futures[future]
            try:
                tables[index] = future.result()
            except ConfigError:
                raise
            except BaseException as error:
                if future.exception() is not error:
                    raise  # this thread was interrupted
                groups = list(dict.fromkeys(episode.group_id for episode in shards[index]))
                raise EngineError(
                    f"rollout shard {index + 1} of {len(shards)} ({job.environment.type}, groups {groups[0]} to "
                    f"{groups[-1]}) failed: {type(error).__name__}: {error}"
                ) from error
            _keep(keeper, shards[index], tables[index])
            if on_shard is not None:
                on_shard(done, len(shards))
    except BaseException as error:
        # Also on KeyboardInterrupt: without `stop`, the pool's threads would go on.
        pool.shutdown(wait=False, cancel_futures=True)  # before the threads of stopped shards begin others
        player.stop()
        pool.shutdown(wait=not isinstance(error, _HungError))
        for future, index in futures.items():  # others that have ended meanwhile
            if future.done() and not (future.cancelled() or future.exception() or tables[index].num_rows):
                _keep(keeper, shards[index], future.result())
        raise
    pool.shutdown()
    parts, usages = zip(*map(take_usage, tables), strict=True) if tables else ((), ())
    turns = pa.concat_tables([schema.empty_table(), *parts])
    if on_turns is not None:
        on_turns(turns)
    if turns.num_rows and set(turns["status"].to_pylist()) == {"truncated"}:
        raise ConfigError(
            f"no episode has room for its first response: {json.loads(turns['info'][0].as_py())['error']}; raise "
            "rollout.max_context_tokens or lower rollout.max_response_tokens"
        )
    _check_environment(turns, job.environment.type)
    return with_usage(turns, total(usages))


def _keep(keeper: ShardKeeper | None, episodes: Sequence[Episode], turns: pa.Table) -> None:
    if keeper is not None and not _failures(turns).are_too_many:
        keeper.keep(episodes, turns)


def _check_environment(turns: pa.Table, environment: str) -> None:
    """Warn of trajectories that an error of the environment ended.

    Raises:
        EnvironmentFault: If it ended two at least, and more than `MAX_ERROR_SHARE` of those that acted.
    """
    for remark in remarks_of(turns, environment):
        _warn_once(remark)
    failures = _failures(turns)
    if not failures.infos:
        return
    errors = Counter(describe_error(info) for info in failures.infos)
    most, num_most = errors.most_common(1)[0]
    summary = (
        f"environment '{environment}' failed in {len(failures.infos)} of {failures.num_acted} trajectories that acted, "
        f"most often ({num_most} times) with {most}"
    )
    if failures.are_too_many:
        raise EnvironmentFault(f"{summary}. Nothing is stored of this rollout: mend the environment and start again")
    _log.warning("%s; these trajectories are not trained on (rollout/env_error_share)", summary)


@dataclass(frozen=True)
class _Failures:
    """Trajectories that an error of the environment ended: the errors, and the number of those that acted."""

    infos: list[str]
    num_acted: int

    @property
    def are_too_many(self) -> bool:
        return len(self.infos) > max(1, MAX_ERROR_SHARE * self.num_acted)


def _failures(turns: pa.Table) -> _Failures:
    rows = pl.DataFrame(turns.select(["trajectory_id", "status", "executed_actions", "info"]))
    failed = pl.col("status") == "env_error"
    acted = rows.filter((pl.col("executed_actions").list.len() > 0) | failed)
    return _Failures(rows.filter(failed)["info"].to_list(), acted["trajectory_id"].n_unique())


def remarks_of(turns: pa.Table, environment: str) -> list[str]:
    """Return what an environment has to tell of a rollout, a sentence each."""
    rows = pl.DataFrame(turns.select(["trajectory_id", "info"]))
    infos = rows.group_by("trajectory_id", maintain_order=True).last()["info"]
    return environment_type(environment).remarks(infos.to_list())


@cache
def _warn_once(remark: str) -> None:
    """Log a warning that is the same in every iteration only once."""
    _log.warning("%s", remark)


def _completed(futures: Mapping[Future[pa.Table], int]) -> Iterator[Future[pa.Table]]:
    """Yield futures as they complete.

    Raises:
        _HungError: If an environment that is played in this process hangs.
    """
    waiting = set(futures)
    while waiting:
        done, waiting = wait(waiting, timeout=1.0, return_when=FIRST_COMPLETED)
        yield from done
        call = overdue_call() if waiting else None
        if call is not None and call.limit is not None:
            interrupt_overdue_calls()
            raise _HungError(
                f"a call of {call.name} has taken longer than {call.limit.seconds:g} s and cannot be ended in this "
                f"process; it plays one of shards {', '.join(str(futures[one] + 1) for one in waiting)}. Mend it, or "
                f"raise {call.limit.setting}"
            )


def _dealt(shards: Sequence[Sequence[Episode]], num_at_once: int, num_episodes: int) -> list[list[Episode]]:
    """Merge shards into one for each that is in play, or more, of at most so many episodes; their order stays."""
    size = -(-len(shards) // num_at_once)
    size = min(size, max(1, num_episodes // max(map(len, shards), default=1)))
    return [
        [episode for shard in shards[first : first + size] for episode in shard]
        for first in range(0, len(shards), size or 1)
    ]
