"""(configuration) -> checkpoint: the first one of a run."""

from pathlib import Path

from ragen.config.policy import PretrainedPolicy, TinyPolicy
from ragen.config.starpo import StarPOConfig
from ragen.store import Store
from schemas.manifest import Stage
from tasks.progress import RunProgress
from tasks.rollout import training_panel
from tasks.stage import Keys, StageWork, stage_task

STAGE = Stage(name="warm_start", version=1)


@stage_task(name="warm_start", task_run_name="warm start")
def warm_start(store_url: str, config: StarPOConfig, progress: RunProgress | None = None) -> Keys:
    """Make the tiny policy and let it imitate demonstrations, or take a pretrained one into the store."""
    store = Store(store_url)
    policy = config.policy
    settings: dict[str, object] = {"policy": policy.model_dump(mode="json")}
    if isinstance(policy, TinyPolicy):
        settings |= {
            "environment": config.environment.model_dump(mode="json"),
            "agent": config.agent.model_dump(mode="json"),
            "max_response_tokens": config.rollout.max_response_tokens,
            "excluded_panel": training_panel(config).digest,
        }
    work = StageWork(store, STAGE, settings, {}, policy.seed if isinstance(policy, TinyPolicy) else None)
    if not work.is_stored("checkpoint"):
        with store.new_folder() as folder:
            headline = _make(policy, config, folder, progress)
            work.put_folder("checkpoint", folder, headline=headline)
    return {"checkpoint": work.key}


def _make(
    policy: TinyPolicy | PretrainedPolicy, config: StarPOConfig, folder: Path, progress: RunProgress | None
) -> dict[str, float]:
    if isinstance(policy, PretrainedPolicy):
        from ragen.policy.load import copy_policy

        return copy_policy(policy, folder)
    from ragen.imitation import imitate

    return imitate(
        policy,
        config.environment,
        config.agent,
        config.rollout.max_response_tokens,
        excluded=frozenset(training_panel(config).state_digests),
        folder=folder,
        on_progress=progress.part if progress else None,
    )
