"""Record what a program says to a policy, without training: the episodes of one rollout.

settings, a policy's folder, a player -> the loop of programs -> rows of `turns`
"""

from typing import Any

import pyarrow as pa

from starpo.ragen.agents.rollout.costs import take_usage
from starpo.ragen.agents.rollout.job import RolloutJob
from starpo.ragen.agents.rollout.shards import ShardPlayer, make_episodes, play_shards
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.envs.initial_states import fresh_env_seed, initial_state
from starpo.ragen.envs.make import make

NO_TASK: list[dict[str, Any]] = [{}]
"""The tasks of a program that needs none: one, without fields."""


def unrated(transcript: list[dict[str, Any]], task: dict[str, Any]) -> float:
    """The reward of a program whose episodes are not rated: 0, in a run that is marked as having no rewards."""
    return 0.0


def record(config: StarPOConfig, player: ShardPlayer, folder: str, num_tasks: int, times: int) -> pa.Table:
    """Play some tasks, each several times.

    Args:
        config: Settings; those of the program, of the agent, of sampling, and the seed count.
        player: Plays them.
        folder: The policy's folder, of which a server's engine takes the tokenizer and the chat template; '' where no
            policy takes part (`relay`).
        num_tasks: Number of different tasks.
        times: Episodes of each, which form a group.

    Returns:
        Dataset `turns`, with each turn's images if the agent shows some.

    Raises:
        EnvironmentFault: If there are too few tasks, or the program cannot be started.
        EngineError: If the engine fails.
    """
    settings, rollout = config.environment, config.rollout
    world, digests, groups = make(settings), set[str](), []
    for number in range(num_tasks):
        env_seed = fresh_env_seed(settings, config.seed, "record", number, excluded=frozenset(digests))
        digests.add(initial_state(world, settings.type, env_seed))
        groups.append((f"g{number:04d}", env_seed))
    job = RolloutJob(folder, folder, settings, config.agent, rollout.sampling, rollout.max_context_tokens)
    turns, _ = take_usage(play_shards(player, job, make_episodes(groups, times, num_tasks)))
    return turns
