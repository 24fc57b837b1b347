"""(configuration) -> checkpoint: the first one of a run."""

from pathlib import Path

from ragen.config.policy import PretrainedPolicy, TinyPolicy
from ragen.config.starpo import StarPOConfig
from ragen.evaluate.panel import excluded_states
from ragen.evaluate.training_states import read_states, write_states
from ragen.policy.place import named_folder
from ragen.registry import AGENT, DEMONSTRATORS, ENVIRONMENTS, LESSONS
from ragen.store import Store
from schemas.manifest import Stage
from tasks.progress import RunProgress
from tasks.rollout import held_out
from tasks.stage import Keys, StageWork, stage_task

STAGE = Stage(name="warm_start", version=2)


@stage_task(name="warm_start", task_run_name="warm start")
def warm_start(store_url: str, config: StarPOConfig, progress: RunProgress | None = None) -> Keys:
    """Make the tiny policy and let it imitate demonstrations, or take a pretrained one into the store."""
    store = Store(store_url)
    policy = config.policy
    settings: dict[str, object] = {"policy": policy.model_dump(mode="json")}
    code: dict[str, str] = {}
    if config.fresh:  # all else is made from this checkpoint, so nothing that is stored is found
        settings["fresh"] = config.fresh
    if isinstance(policy, TinyPolicy):
        from ragen.policy.tokenizer import vocabulary_digest

        settings |= {
            "vocabulary": vocabulary_digest(),
            "environment": config.environment.model_dump(mode="json"),
            "agent": config.agent.model_dump(mode="json"),
            "max_response_tokens": config.rollout.max_response_tokens,
            "excluded_panels": sorted({panel.digest for panel in held_out(config)}),
        }
        name = config.environment.type
        played = {"environment": ENVIRONMENTS, "demonstrator": DEMONSTRATORS, "lessons": LESSONS}
        code = {role: registry[name] for role, registry in played.items() if name in registry} | AGENT
    seed = policy.seed if isinstance(policy, TinyPolicy) else None
    work = StageWork(store, STAGE, settings, {}, seed, code)
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

        source = named_folder(policy)
        met = read_states(source) if source else []
        headline = copy_policy(policy, folder)
        if met:
            write_states(folder, met)
        return headline
    from ragen.imitation import imitate

    return imitate(
        policy,
        config.environment,
        config.agent,
        config.rollout.max_response_tokens,
        excluded=excluded_states(held_out(config)),
        folder=folder,
        on_progress=progress.part if progress else None,
    )
