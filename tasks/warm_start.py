"""(configuration) -> the first checkpoint of a run."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from starpo.ragen.agents.evaluation.panel import excluded_states
from starpo.ragen.agents.evaluation.training_states import read_states, write_states
from starpo.ragen.agents.policy.place import named_folder
from starpo.ragen.config.policy import PretrainedPolicy, TinyPolicy
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.registry import SCENES, agent_code
from starpo.ragen.envs.make import environment_code, environment_type
from starpo.ragen.store import Store
from starpo.ragen.work import Made, Work
from starpo.schemas.manifest import Stage
from starpo.tasks.progress import RunProgress
from starpo.tasks.rollout import held_out

STAGE = Stage(name="warm_start", version=3)


def warm_start(config: StarPOConfig, progress: RunProgress | None = None) -> Work:
    """Create the tiny policy and train it on demonstrations, or take a pretrained one, optionally fine-tuned."""
    policy = config.policy
    settings: dict[str, Any] = {"policy": policy.model_dump(mode="json")}
    code: dict[str, str] = {}
    if config.fresh:  # all other keys depend on this checkpoint, so no stored artifact is reused
        settings["fresh"] = config.fresh
    player = policy if isinstance(policy, TinyPolicy) else policy.fine_tuning
    if player is None:
        del settings["policy"]["fine_tuning"]
    else:
        from starpo.ragen.agents.policy.tokenizer import demonstrator, unknown_speech, vocabulary_digest

        if isinstance(policy, TinyPolicy):
            settings["vocabulary"] = vocabulary_digest(unknown_speech(policy, config.environment, config.agent.form))
        settings |= {
            "environment": config.environment.model_dump(mode="json"),
            "agent": config.agent.model_dump(mode="json"),
            "max_response_tokens": config.rollout.max_response_tokens,
            "excluded_panels": sorted({panel.digest for panel in held_out(config)}),
        }
        code = {
            **environment_code(config.environment),
            "demonstrator": demonstrator(player, config.environment),
            **agent_code(config.agent.prompt, config.agent.form),
        }
        if config.agent.form != "free":
            code |= {f"scene of {tag}": SCENES[part.type] for tag, part in config.environment.tagged().items()}
        if lessons := environment_type(config.environment.type).lessons:
            code["lessons"] = lessons
        for tag, part in config.environment.tagged().items():
            if part is not config.environment:
                world = environment_type(part.type)
                named = {f"demonstrator of {tag}": world.demonstrator, f"lessons of {tag}": world.lessons}
                code |= {role: target for role, target in named.items() if target}
    seed = None if player is None else player.seed

    def do(work: Work, store: Store) -> Iterator[Made]:
        from starpo.ragen.envs import make

        fault = make(config.environment).replay_fault if player is not None else ""
        with store.new_folder() as folder:
            headline = _make(policy, config, folder, progress)
            yield Made("checkpoint", folder, headline, is_deterministic=_is_repeatable(policy), replay_fault=fault)

    return Work(STAGE, ("checkpoint",), do, settings, seed=seed, code=code)


def _is_repeatable(policy: TinyPolicy | PretrainedPolicy) -> bool:
    """Whether the result is reproducible: a pretrained policy is fine-tuned on the GPU if there is one."""
    import torch

    return isinstance(policy, TinyPolicy) or policy.fine_tuning is None or not torch.cuda.is_available()


def _make(
    policy: TinyPolicy | PretrainedPolicy, config: StarPOConfig, folder: Path, progress: RunProgress | None
) -> dict[str, float]:
    source = named_folder(policy) if isinstance(policy, PretrainedPolicy) else None
    met = read_states(source) if source else []
    if isinstance(policy, PretrainedPolicy) and policy.fine_tuning is None:
        from starpo.ragen.agents.policy.load import copy_policy

        headline = copy_policy(policy, folder)
        if met:
            write_states(folder, met)
        return headline
    from starpo.ragen.learning.imitation import fine_tune, imitate

    played = config.environment, config.agent, config.rollout.max_response_tokens, excluded_states(held_out(config))
    on_progress = progress.part if progress else None
    if isinstance(policy, PretrainedPolicy):
        return fine_tune(policy, *played, folder, met, on_progress)
    return imitate(policy, *played, folder, on_progress)
