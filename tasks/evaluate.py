"""checkpoint -> episodes, their turns, and metrics of one cell (the fixed panel of an environment)."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from starpo.ragen.agents.evaluation.panel import Panel, panel_of
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.environment import EnvironmentConfig
from starpo.ragen.config.evaluation import EvaluationConfig
from starpo.ragen.config.rollout import RolloutConfig, SamplingConfig
from starpo.ragen.core.registry import agent_code
from starpo.ragen.envs.make import environment_code
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.runs.work import Output, Work
from starpo.ragen.store import Store
from starpo.schemas.manifest import Stage
from starpo.tasks.progress import RunProgress

STAGE = Stage(name="evaluate", version=5)
"""Of several samples per prompt, whose interval of success is another since; what was stored of one is still right."""

_SHARD_OF_OWN_LOOP = 512
"""Episodes of a shard at most where the environment plays by a loop of its own, which has its own limit of episodes in
play: so one shard is played at a time, however the engine would have it."""
_OF_TRAINING_ALONE = {"temperature", "num_groups", "staleness", "max_attempts", "num_greedy", "search"}
"""Rollout settings that do not apply to an evaluation; all others, including those of new engines, are in the key."""


def evaluate(
    iteration: int,
    cell: str,
    environment: EnvironmentConfig,
    agent: AgentConfig,
    rollout: RolloutConfig,
    evaluation: EvaluationConfig,
    checkpoint: str,
    *,
    lineage: str,
    seed: int = 0,
    progress: RunProgress | None = None,
) -> Work:
    """Play the panel of this environment. The same stage is used during training and offline.

    Every prompt is played. Success is computed over the prompts from whose initial states the checkpoint's training
    never started. The others are measured separately, as the cell `<cell>/seen`; the metric `num_seen_prompts` counts
    them. An environment with few initial states has no such split: its panel covers all states to train on.

    Args:
        iteration: Updates completed before it.
        cell: Name of the panel.
        environment: The environment.
        agent: Settings of the agent.
        rollout: Settings of engine and context.
        evaluation: Settings of the panel, and the temperature.
        checkpoint: Key of the evaluated checkpoint.
        lineage: Address of the store that holds the artifacts from which the checkpoint was made.
        seed: Seed n plays the n-th batch of members of every prompt: the same initial states, with different random
            numbers for sampling and dynamics. Training uses seed 0, which is omitted from the key, so that its results
            are found.
        progress: Receives its progress.
    """
    panel = panel_of(environment, evaluation)
    drawn = {"env_seeds"} if evaluation.env_seeds is None else set()
    settings = {
        "cell": cell,
        "iteration": iteration,
        "environment": environment.model_dump(mode="json"),
        "agent": agent.model_dump(mode="json"),
        "evaluation": evaluation.model_dump(mode="json", exclude={"every", "variants", *drawn}),
        "rollout": rollout.model_dump(mode="json", exclude=_OF_TRAINING_ALONE),
        "panel": panel.digest,
        **({"seed": seed} if seed else {}),
        **({"images": True} if agent.shows_images else {}),
    }
    code = {**environment_code(environment), **agent_code(agent.prompt, agent.form)}
    images = ("images", "turn_images") if agent.shows_images else ()
    inputs, outputs = {"checkpoint": checkpoint}, (*images, "episode_turns", "episodes", "metrics")
    do = partial(_play, panel, environment, agent, rollout, evaluation, lineage, progress)
    return Work(STAGE, outputs, do, settings, inputs, evaluation.panel_seed, code, cell)


def _play(
    panel: Panel,
    environment: EnvironmentConfig,
    agent: AgentConfig,
    rollout: RolloutConfig,
    evaluation: EvaluationConfig,
    lineage: str,
    progress: RunProgress | None,
    work: Work,
    store: Store,
    placement: ModelPlacement,
) -> Iterator[Output]:
    from starpo.ragen.agents.evaluation.episodes import episode_turns, fold_episodes
    from starpo.ragen.agents.evaluation.summary import summarise
    from starpo.ragen.agents.rollout.costs import take_usage
    from starpo.ragen.agents.rollout.job import RolloutJob
    from starpo.ragen.agents.rollout.shards import make_episodes, play_shards
    from starpo.ragen.agents.rollout.turn_images import take_images
    from starpo.ragen.config.engine import Merging
    from starpo.ragen.envs import make
    from starpo.ragen.envs.make import environment_type
    from starpo.ragen.learning.metrics.table import metrics_table
    from starpo.ragen.runs.kept_shards import KeptShards
    from starpo.ragen.runs.training_states import TrainingStates, training_states

    cell, iteration = work.part, work.settings["iteration"]
    groups = [(f"p{prompt:04d}", seed) for prompt, seed in enumerate(panel.env_seeds)]
    # Shards of equal size, with at most as many trajectories as those of a rollout, and one for each worker. The player
    # is that of the rollouts, even for a single shard: this process would have to load the model once more.
    num_trajectories = len(groups) * evaluation.samples_per_prompt
    num_shards = -(-num_trajectories // (rollout.shard_groups * rollout.group_size))
    player = placement.players.player(rollout, max(num_shards, -(-rollout.num_groups // rollout.shard_groups)))
    num_shards = min(max(num_shards, player.num_workers), len(groups))
    shards = make_episodes(
        groups,
        evaluation.samples_per_prompt,
        shard_groups=-(-len(groups) // num_shards),
        batch=work.settings.get("seed", 0),
    )
    sampling = SamplingConfig(
        temperature=evaluation.temperature, top_p=rollout.top_p, max_response_tokens=rollout.max_response_tokens
    )
    checkpoint = work.inputs["checkpoint"]
    job = RolloutJob(
        folder=placement.learner.policy_folder(store, checkpoint),
        checkpoint_key=checkpoint,
        environment=environment,
        agent=agent,
        sampling=sampling,
        max_context_tokens=rollout.max_context_tokens,
        deadline_s=rollout.deadline_s,
        store_url=store.address,
    )
    merging = rollout.engine_config.panel_merging
    if environment_type(environment.type).plays:
        merging = Merging(min(merging.num_episodes * merging.num_at_once, _SHARD_OF_OWN_LOOP))
    on_shard = progress.watch(player, num_trajectories * agent.max_turns) if progress else None
    kept = KeptShards(
        store,
        work,
        is_computed=rollout.engine_config.plays_checkpoint,
        on_recall=progress.resume if progress else None,
    )
    turns, usage = take_usage(play_shards(player, job, shards, on_shard, keeper=kept, merging=merging))
    # Looked up after playing: by then, the run's latest artifacts are in its store.
    trained = TrainingStates(frozenset(), 0)
    if evaluation.env_seeds is None:
        trained = training_states(Store(lineage), checkpoint)
    episodes = fold_episodes(turns, cell, evaluation.temperature, trained.seen_states(panel))
    facts = trained.facts(panel) | {f"engine_{name}": value for name, value in usage.items()}
    values = summarise(episodes) | {f"evaluation/{cell}/{name}": value for name, value in facts.items()}
    # with a deadline, wall-clock time decides what is played
    is_repeatable = placement.players.is_deterministic(rollout) and rollout.deadline_s is None
    common: dict[str, Any] = {
        "is_deterministic": is_repeatable,
        "replay_fault": make(environment).replay_fault,
        "provenance": kept.provenance(),
    }
    if agent.shows_images:
        turns, turn_images, images = take_images(turns)
        yield Output("images", images, **common)
        yield Output("turn_images", turn_images, **common)
    yield Output("episode_turns", episode_turns(turns, has_tokens=rollout.engine_config.gives_tokens), **common)
    yield Output("metrics", metrics_table(iteration, work.name, values), values, **common)
    yield Output("episodes", episodes, values, **common)
    kept.forget()
