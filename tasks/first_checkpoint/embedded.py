"""The embedded policy: built from its settings, and trained on demonstrations."""

from collections.abc import Iterator
from functools import partial

from starpo.ragen.agents.evaluation.panel import excluded_states
from starpo.ragen.config.policy import TinyPolicy
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.runs.work import Output, Work
from starpo.ragen.store import Store
from starpo.tasks.first_checkpoint.demonstrations import demonstration_code, demonstration_settings
from starpo.tasks.first_checkpoint.stages import EMBEDDED, policy_settings
from starpo.tasks.held_out import held_out, held_out_digests
from starpo.tasks.progress import RunProgress


def embedded(config: StarPOConfig, policy: TinyPolicy, progress: RunProgress | None) -> Work:
    """Create the embedded policy, and train it on demonstrations.

    Raises:
        ConfigError: If the environment has no demonstrator.
    """
    from starpo.ragen.agents.policy.tokenizer import extra_vocabulary, vocabulary_digest

    settings = policy_settings(config, policy.model_dump(mode="json"))
    settings["excluded_panels"] = held_out_digests(config)
    settings["vocabulary"] = vocabulary_digest(extra_vocabulary(policy, config.environment, config.agent.form))
    code = {}
    if policy.warm_start_steps:  # without a step nothing is demonstrated
        settings |= demonstration_settings(config)
        code = demonstration_code(config, policy)
    do = partial(_create, config, policy, progress)
    return Work(EMBEDDED, ("checkpoint",), do, settings, seed=policy.seed, code=code)


def _create(
    config: StarPOConfig,
    policy: TinyPolicy,
    progress: RunProgress | None,
    work: Work,
    store: Store,
    placement: ModelPlacement,
) -> Iterator[Output]:
    from starpo.ragen.envs import make
    from starpo.ragen.learning.imitation import imitate

    fault = make(config.environment).replay_fault
    excluded = excluded_states(held_out(config))
    played = config.environment, config.agent, config.rollout.max_response_tokens, excluded
    with store.new_folder() as folder:
        headline = imitate(policy, *played, folder, progress.part if progress else None)
        yield Output("checkpoint", folder, headline, replay_fault=fault)
