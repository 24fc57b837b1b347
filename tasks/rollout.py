"""checkpoint -> turns."""

import pyarrow as pa
import pyarrow.compute as pc

from ragen.config.starpo import StarPOConfig
from ragen.errors import ConfigError
from ragen.evaluate.panel import Panel, excluded_states, make_panel
from ragen.registry import AGENT, ENVIRONMENTS
from ragen.store import Store
from schemas.manifest import Stage
from tasks.stage import Keys, StageWork, stage_task

STAGE = Stage(name="rollout", version=2)


@stage_task(name="rollout", task_run_name="{iteration:03d} rollout")
def rollout(store_url: str, iteration: int, config: StarPOConfig, checkpoint: str) -> Keys:
    """Play the iteration's groups with this checkpoint.

    Initial states of the run's evaluation panels are never played: their digests are excluded by hash.

    Raises:
        ConfigError: If the engine only evaluates.
    """
    if config.rollout.engine == "openai":
        raise ConfigError(
            "rollout.engine = 'openai' cannot be trained on: what it says has no log-probs of the policy that said it, "
            "and its model is the server's, not the checkpoint. It can be evaluated: ragen evaluate (docs/vllm.md)"
        )
    store = Store(store_url)
    settings = {
        "environment": config.environment.model_dump(mode="json"),
        "agent": config.agent.model_dump(mode="json"),
        "rollout": config.rollout.model_dump(mode="json", exclude={"staleness"}),  # which says who plays: an input
        "iteration": iteration,
        "excluded_panels": sorted({panel.digest for panel in held_out(config)}),
    }
    code = {"environment": ENVIRONMENTS[config.environment.type], **AGENT}
    work = StageWork(store, STAGE, settings, {"checkpoint": checkpoint}, config.seed, code)
    if not work.is_stored("turns"):
        _play(work, iteration, config)
    return {"turns": work.key}


def held_out(config: StarPOConfig) -> list[Panel]:
    """The panels whose initial states training must not see: the training environment's, and the variants'."""
    evaluation = config.evaluation
    return [
        make_panel(environment, evaluation.num_prompts, evaluation.panel_seed) for environment in config.panels.values()
    ]


def _play(work: StageWork, iteration: int, config: StarPOConfig) -> None:
    from ragen.envs.initial_states import fresh_env_seed
    from ragen.rollout.job import RolloutJob
    from ragen.rollout.shards import make_episodes, play_shards
    from ragen.rollout.usage import take_usage
    from tasks.warm_processes import checkpoint_folder, is_deterministic, num_lost_workers, shard_player

    settings = config.rollout
    excluded = excluded_states(held_out(config))
    groups = [
        (
            f"g{group:04d}",
            fresh_env_seed(config.environment, config.seed, "environment", iteration, group, excluded=excluded),
        )
        for group in range(settings.num_groups)
    ]
    checkpoint = work.inputs["checkpoint"]
    job = RolloutJob(
        folder=checkpoint_folder(work.store, checkpoint),
        checkpoint_key=checkpoint,
        environment=config.environment,
        agent=config.agent,
        sampling=settings.sampling,
        max_context_tokens=settings.max_context_tokens,
        deadline_s=settings.deadline_s,
        store_url=work.store.url,
    )
    shards = make_episodes(groups, settings.group_size, settings.shard_groups)
    num_lost = num_lost_workers()
    turns, usage = take_usage(play_shards(shard_player(settings, len(shards)), job, shards))
    told = {"usage": usage, "lost_workers": num_lost_workers() - num_lost}
    work.put_table(
        "turns",
        turns,
        headline=_headline(turns),
        provenance={name: value for name, value in told.items() if value},
        # with a deadline it is the clock that decides what is played
        is_deterministic=is_deterministic(settings) and settings.deadline_s is None,
    )


def _headline(turns: pa.Table) -> dict[str, float]:
    """How many trajectories there are, and how many reached the goal; `variance_filter` measures the rest."""
    goals = turns.filter(turns["success"])
    return {
        "num_trajectories": pc.count_distinct(turns["trajectory_id"]).as_py(),
        "num_successful": pc.count_distinct(goals["trajectory_id"]).as_py(),
    }
