"""checkpoint -> episodes, metrics: one cell (an environment's fixed panel) at a time."""

from ragen.config.agent import AgentConfig
from ragen.config.environment import EnvironmentConfig
from ragen.config.evaluation import EvaluationConfig
from ragen.config.rollout import RolloutConfig, SamplingConfig
from ragen.evaluate.panel import make_panel
from ragen.store import Store
from schemas.manifest import Stage
from tasks.stage import Keys, StageWork, stage_task

STAGE = Stage(name="evaluate", version=1)


@stage_task(name="evaluate", task_run_name="{iteration:03d} evaluate {cell}", timeout_seconds=24 * 3600)
def evaluate(
    store_url: str,
    iteration: int,
    cell: str,
    environment: EnvironmentConfig,
    agent: AgentConfig,
    rollout: RolloutConfig,
    evaluation: EvaluationConfig,
    checkpoint: str,
) -> Keys:
    """Play the panel of this environment. The same stage during training and offline."""
    store = Store(store_url)
    settings = {
        "cell": cell,
        "iteration": iteration,
        "environment": environment.model_dump(mode="json"),
        "agent": agent.model_dump(mode="json"),
        "evaluation": evaluation.model_dump(mode="json", exclude={"every", "variants"}),
        "rollout": rollout.model_dump(
            mode="json",
            include={"max_response_tokens", "max_context_tokens", "group_size", "shard_groups", "engine", "top_p"},
        ),
        "panel": make_panel(environment, evaluation.num_prompts, evaluation.panel_seed).digest,
    }
    work = StageWork(store, STAGE, settings, {"checkpoint": checkpoint}, evaluation.panel_seed)
    if not work.is_stored("episodes", "metrics"):
        _play(work, environment, agent, rollout, evaluation)
    return {"episodes": work.key, "metrics": work.key}


def _play(
    work: StageWork,
    environment: EnvironmentConfig,
    agent: AgentConfig,
    rollout: RolloutConfig,
    evaluation: EvaluationConfig,
) -> None:
    from ragen.config.runtime import Runtime
    from ragen.diagnostics.metrics import metrics_table
    from ragen.evaluate.episodes import fold_episodes
    from ragen.evaluate.summary import summarise
    from ragen.policy.load import load_tokenizer
    from ragen.rollout.shards import make_episodes, play_groups
    from tasks.warm_processes import engine_at

    cell, iteration = work.settings["cell"], work.settings["iteration"]
    panel = make_panel(environment, evaluation.num_prompts, evaluation.panel_seed)
    groups = [(f"p{prompt:04d}", seed) for prompt, seed in enumerate(panel.env_seeds)]
    # The panel is dealt to shards of about as many trajectories as a rollout's.
    groups_per_shard = max(1, rollout.shard_groups * rollout.group_size // evaluation.samples_per_prompt)
    sampling = SamplingConfig(
        temperature=evaluation.temperature, top_p=rollout.top_p, max_response_tokens=rollout.max_response_tokens
    )
    engine = engine_at(work.store, work.inputs["checkpoint"], rollout.engine)
    turns = play_groups(
        engine,
        load_tokenizer(work.store.local_folder("checkpoint", work.inputs["checkpoint"])),
        environment,
        agent,
        sampling,
        rollout.max_context_tokens,
        make_episodes(groups, evaluation.samples_per_prompt, groups_per_shard),
        rollout.deadline_s,
        num_workers=Runtime().threads,
        on_shard=None,
    )
    episodes = fold_episodes(turns, cell, evaluation.temperature)
    values = summarise(episodes)
    stored = {"is_deterministic": engine.is_deterministic, "headline": values}
    work.put_table("metrics", metrics_table(iteration, f"{STAGE.name}:{cell}", values), **stored)
    work.put_table("episodes", episodes, **stored)
