"""checkpoint -> episodes, metrics: one cell (an environment's fixed panel) at a time."""

from ragen.config.agent import AgentConfig
from ragen.config.environment import EnvironmentConfig
from ragen.config.evaluation import EvaluationConfig
from ragen.config.rollout import RolloutConfig, SamplingConfig
from ragen.evaluate.panel import make_panel
from ragen.registry import AGENT, ENVIRONMENTS
from ragen.store import Store
from schemas.manifest import Stage
from tasks.stage import Keys, StageWork, stage_task

STAGE = Stage(name="evaluate", version=3)

_OF_TRAINING_ALONE = {"temperature", "num_groups", "staleness"}
"""Settings of rollouts that an evaluation does not have; every other one counts, of a new engine's too."""


@stage_task(name="evaluate", task_run_name="{iteration:03d} evaluate {cell}")
def evaluate(
    store_url: str,
    iteration: int,
    cell: str,
    environment: EnvironmentConfig,
    agent: AgentConfig,
    rollout: RolloutConfig,
    evaluation: EvaluationConfig,
    checkpoint: str,
    seed: int = 0,
    lineage: str | None = None,
) -> Keys:
    """Play the panel of this environment. The same stage during training and offline.

    Seed n plays every prompt with its n-th batch of members: the same initial states, other chance in sampling and
    dynamics. Training plays seed 0, which is not in the key, so that what it has measured is found.

    Every prompt is played, and success is over those in which no training of the checkpoint began. The others are
    measured apart, as the cell `<cell>/seen`; the metric `num_seen_prompts` counts them. An environment with few
    initial states has no such split: a panel of it covers all there is to train on.

    Args:
        lineage: The store that has what the checkpoint was made from. None: this one.
    """
    store = Store(store_url)
    settings = {
        "cell": cell,
        "iteration": iteration,
        "environment": environment.model_dump(mode="json"),
        "agent": agent.model_dump(mode="json"),
        "evaluation": evaluation.model_dump(mode="json", exclude={"every", "variants"}),
        "rollout": rollout.model_dump(mode="json", exclude=_OF_TRAINING_ALONE),
        "panel": make_panel(environment, evaluation.num_prompts, evaluation.panel_seed).digest,
        **({"seed": seed} if seed else {}),
    }
    code = {"environment": ENVIRONMENTS[environment.type], **AGENT}
    work = StageWork(store, STAGE, settings, {"checkpoint": checkpoint}, evaluation.panel_seed, code)
    if not work.is_stored("episodes", "metrics"):
        _play(work, environment, agent, rollout, evaluation, seed, lineage)
    return {"episodes": work.key, "metrics": work.key}


def _play(
    work: StageWork,
    environment: EnvironmentConfig,
    agent: AgentConfig,
    rollout: RolloutConfig,
    evaluation: EvaluationConfig,
    seed: int,
    lineage: str | None,
) -> None:
    from ragen.diagnostics.metrics import metrics_table
    from ragen.evaluate.episodes import fold_episodes
    from ragen.evaluate.summary import summarise
    from ragen.evaluate.training_states import training_states
    from ragen.rollout.job import RolloutJob
    from ragen.rollout.shards import make_episodes, play_shards
    from ragen.rollout.usage import take_usage
    from tasks.warm_processes import checkpoint_folder, is_deterministic, shard_player

    cell, iteration = work.settings["cell"], work.settings["iteration"]
    panel = make_panel(environment, evaluation.num_prompts, evaluation.panel_seed)
    groups = [(f"p{prompt:04d}", seed) for prompt, seed in enumerate(panel.env_seeds)]
    # Shards of equal size, none with more trajectories than a rollout's.
    num_trajectories = len(groups) * evaluation.samples_per_prompt
    num_shards = -(-num_trajectories // (rollout.shard_groups * rollout.group_size))
    shards = make_episodes(
        groups,
        evaluation.samples_per_prompt,
        shard_groups=-(-len(groups) // num_shards),
        batch=seed,
    )
    sampling = SamplingConfig(
        temperature=evaluation.temperature, top_p=rollout.top_p, max_response_tokens=rollout.max_response_tokens
    )
    checkpoint = work.inputs["checkpoint"]
    job = RolloutJob(
        folder=checkpoint_folder(work.store, checkpoint),
        checkpoint_key=checkpoint,
        environment=environment,
        agent=agent,
        sampling=sampling,
        max_context_tokens=rollout.max_context_tokens,
        deadline_s=rollout.deadline_s,
        store_url=work.store.url,
    )
    turns, usage = take_usage(play_shards(shard_player(rollout, len(shards)), job, shards))
    # Asked for after playing: by then, what the run wrote last is in its store.
    trained = training_states(Store(lineage) if lineage else work.store, checkpoint)
    episodes = fold_episodes(turns, cell, evaluation.temperature, trained.seen(panel))
    facts = trained.facts(panel) | {f"engine_{name}": value for name, value in usage.items()}
    values = summarise(episodes) | {f"evaluation/{cell}/{name}": value for name, value in facts.items()}
    # with a deadline it is the clock that decides what is played
    is_repeatable = is_deterministic(rollout) and rollout.deadline_s is None
    stored = {"is_deterministic": is_repeatable, "headline": values}
    work.put_table("metrics", metrics_table(iteration, f"{STAGE.name}:{cell}", values), **stored)
    work.put_table("episodes", episodes, **stored)
