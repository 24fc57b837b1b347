"""checkpoint -> turns; with `rollout.search` the candidates of every turn too, with images those of the prompts."""

from collections.abc import Iterator
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from starpo.ragen.agents.evaluation.panel import excluded_states
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.core.lookup import needs
from starpo.ragen.core.registry import SEARCHES, agent_code
from starpo.ragen.envs.make import check_can_be_cloned, environment_code
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.runs.work import Output, Work
from starpo.ragen.store import Store
from starpo.schemas.manifest import Stage
from starpo.tasks.held_out import held_out, held_out_digests
from starpo.tasks.progress import RunProgress

STAGE = Stage(name="rollout", version=4)


_NOT_OF_A_ROLLOUT = {"staleness", "max_attempts"}
"""Settings that decide which checkpoint plays (an input of the stage) and how often."""


def rollout(
    iteration: int,
    config: StarPOConfig,
    checkpoint: str,
    attempt: int = 0,
    progress: RunProgress | None = None,
    curriculum: str = "",
) -> Work:
    """Sample the iteration's groups with this checkpoint.

    Initial states of the run's evaluation panels are never played: they are excluded by digest. Group numbers, and with
    them the seeds, continue from attempt to attempt, so two attempts play the same groups as one rollout of twice the
    size. In a mixture, each group is assigned to a part, in every iteration alike or as a curriculum says.

    Args:
        iteration: Updates completed before it.
        config: Settings of the iteration.
        checkpoint: Key of the sampling policy.
        attempt: Index of this rollout within the iteration, from 0.
        progress: Receives its progress.
        curriculum: Key of the curriculum with the shares of the parts; "" for the environment's own shares.

    Raises:
        ConfigError: If the engine can only evaluate, or `rollout.search` is set and the environment cannot be cloned.
    """
    if not config.rollout.engine_config.plays_checkpoint:
        raise ConfigError(
            f"rollout.engine = '{config.rollout.engine}' cannot be trained on: its responses have no log-probs, and "
            "the checkpoint does not play. It can be evaluated: starpo evaluate (docs/evaluate.md)"
        )
    search = config.rollout.search
    if search is not None and "clones" in needs(SEARCHES, search.type):
        check_can_be_cloned(config.environment, "rollout.search needs")
    settings = {
        "environment": config.environment.model_dump(mode="json"),
        "agent": config.agent.model_dump(mode="json"),
        "rollout": config.rollout.model_dump(mode="json", exclude=_NOT_OF_A_ROLLOUT),
        "iteration": iteration,
        "excluded_panels": held_out_digests(config),
        **({"attempt": attempt} if attempt else {}),
    }
    code = {**environment_code(config.environment), **agent_code(config.agent.prompt, config.agent.form)}
    if search is not None:
        code["search"] = SEARCHES[search.type]
    do, part = partial(_play, config, iteration, attempt, progress), str(attempt) if attempt else ""
    siblings = () if search is None else ("siblings",)
    images = ("images", "turn_images") if config.agent.shows_images else ()
    outputs = (*siblings, *images, "turns")
    inputs = {"checkpoint": checkpoint} | ({"curriculum": curriculum} if curriculum else {})
    return Work(STAGE, outputs, do, settings, inputs, config.seed, code, part)


def _play(
    config: StarPOConfig,
    iteration: int,
    attempt: int,
    progress: RunProgress | None,
    work: Work,
    store: Store,
    placement: ModelPlacement,
) -> Iterator[Output]:
    from starpo.ragen.agents.rollout.costs import take_usage
    from starpo.ragen.agents.rollout.job import RolloutJob
    from starpo.ragen.agents.rollout.shards import make_episodes, play_shards
    from starpo.ragen.agents.rollout.siblings import take_siblings
    from starpo.ragen.agents.rollout.turn_images import take_images
    from starpo.ragen.envs import make
    from starpo.ragen.envs.initial_states import fresh_env_seed

    settings = config.rollout
    excluded = excluded_states(held_out(config))
    path = config.seed, "environment", iteration
    number = (attempt + 1) * settings.num_groups
    if "curriculum" in work.inputs:
        from starpo.ragen.learning.levels import deal_levels

        tags = deal_levels(store.read_table("curriculum", work.inputs["curriculum"]), number)
    else:
        tags = config.environment.assign_parts(number)
    groups = [
        (f"g{group:04d}", fresh_env_seed(config.environment, *path, group, excluded=excluded, tag=tags[group]))
        for group in range(attempt * settings.num_groups, number)
    ]
    checkpoint = work.inputs["checkpoint"]
    job = RolloutJob(
        folder=placement.learner.policy_folder(store, checkpoint),
        checkpoint_key=checkpoint,
        environment=config.environment,
        agent=config.agent,
        sampling=settings.sampling,
        max_context_tokens=settings.max_context_tokens,
        deadline_s=settings.deadline_s,
        store_url=store.address,
        search=settings.search,
    )
    shards = make_episodes(groups, settings.group_size, settings.shard_groups, num_greedy=settings.num_greedy)
    num_lost = placement.players.num_lost
    player = placement.players.player(settings, len(shards))
    num_responses = sum(map(len, shards)) * config.agent.max_turns
    on_shard = progress.watch(player, num_responses) if progress else None
    turns, usage = take_usage(play_shards(player, job, shards, on_shard))
    statistics = {"usage": usage, "lost_workers": placement.players.num_lost - num_lost}
    # with a deadline, wall-clock time decides what is played
    is_repeatable = placement.players.is_deterministic(settings) and settings.deadline_s is None
    provenance = {name: value for name, value in statistics.items() if value}
    fault = make(config.environment).replay_fault
    if settings.search is not None:
        turns, siblings = take_siblings(turns)
        yield Output("siblings", siblings, is_deterministic=is_repeatable, replay_fault=fault)
    if config.agent.shows_images:
        turns, turn_images, images = take_images(turns)
        yield Output("images", images, is_deterministic=is_repeatable, replay_fault=fault)
        yield Output("turn_images", turn_images, is_deterministic=is_repeatable, replay_fault=fault)
    yield Output("turns", turns, _headline(turns), provenance, is_repeatable, fault)


def _headline(turns: pa.Table) -> dict[str, float]:
    """Count the trajectories, and those that reached the goal, without greedy ones; `diagnose` measures the rest."""
    turns = turns.filter(pc.not_equal(turns["origin"], "greedy"))
    goals = turns.filter(turns["success"])
    return {
        "num_trajectories": pc.count_distinct(turns["trajectory_id"]).as_py(),
        "num_successful": pc.count_distinct(goals["trajectory_id"]).as_py(),
    }
