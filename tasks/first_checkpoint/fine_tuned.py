"""A pretrained policy, fine-tuned on demonstrations or on stored episodes.

policy, settings -> demonstrations, or stored episodes -> steps, here or on the learner's ranks -> checkpoint
"""

import logging
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from starpo.ragen.agents.evaluation.panel import excluded_states
from starpo.ragen.config.device import Device
from starpo.ragen.config.policy import FineTuning, PretrainedPolicy
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.runs.work import Output, Work
from starpo.ragen.store import Store
from starpo.tasks.first_checkpoint.demonstrations import demonstration_code, demonstration_settings
from starpo.tasks.first_checkpoint.pretrained import trained_states
from starpo.tasks.first_checkpoint.stages import PRETRAINED, policy_settings
from starpo.tasks.first_checkpoint.stored_episodes import chosen_episodes, episode_lines, tokenised_episodes
from starpo.tasks.held_out import held_out, held_out_digests
from starpo.tasks.progress import RunProgress

if TYPE_CHECKING:
    from starpo.ragen.learning.examples import ImitationData
    from starpo.ragen.learning.learners.learner import FineTuner

_log = logging.getLogger(__name__)

_OF_DEMONSTRATIONS = {"demonstrator", "demonstration_turns", "demonstration_skill"}
"""Settings that do not apply to stored episodes."""
_OF_EPISODES = {"runs", "episodes", "min_return"}
"""Settings that do not apply to demonstrations."""


def fine_tuned_on_demonstrations(
    config: StarPOConfig, policy: PretrainedPolicy, tuning: FineTuning, progress: RunProgress | None
) -> Work:
    """Fine-tune a pretrained policy on demonstrations.

    Raises:
        ConfigError: If the environment has no demonstrator.
    """
    settings = _settings(config, policy, tuning, idle=_OF_EPISODES) | _learner_settings(config)
    settings |= {"excluded_panels": held_out_digests(config), **demonstration_settings(config)}
    do = partial(_imitate_demonstrator, config, policy, tuning, progress)
    code = demonstration_code(config, tuning)
    return Work(PRETRAINED, ("checkpoint",), do, settings, seed=tuning.seed, code=code)


def fine_tuned_on_episodes(
    config: StarPOConfig,
    policy: PretrainedPolicy,
    tuning: FineTuning,
    stored: Mapping[str, str],
    progress: RunProgress | None,
    *,
    should_render: bool,
) -> Work:
    """Fine-tune a pretrained policy on stored episodes.

    Args:
        config: All settings.
        policy: The policy.
        tuning: Its fine-tuning. Which runs it names is not in the key, only what they stored.
        stored: Role -> key of the episodes.
        progress: Receives the progress of the training.
        should_render: Whether some of the episodes are texts, which the chat template writes.
    """
    settings = _settings(config, policy, tuning, idle=_OF_DEMONSTRATIONS | {"runs"})
    if should_render:
        names = {"chat_template", "template_system_prompt"}
        settings["rendering"] = config.agent.model_dump(mode="json", include=names)
        settings["rendering"]["max_context_tokens"] = config.rollout.max_context_tokens
    settings |= _learner_settings(config) | {"excluded_panels": held_out_digests(config)}
    do = partial(_imitate_episodes, config, policy, tuning, progress)
    return Work(PRETRAINED, ("checkpoint",), do, settings, stored, seed=tuning.seed)


def _settings(config: StarPOConfig, policy: PretrainedPolicy, tuning: FineTuning, *, idle: set[str]) -> dict[str, Any]:
    """Return the settings of the policy, without those of its fine-tuning that are idle."""
    of_policy = policy.model_dump(mode="json")
    return policy_settings(config, of_policy | {"fine_tuning": tuning.model_dump(mode="json", exclude=idle)})


def _learner_settings(config: StarPOConfig) -> dict[str, Any]:
    """Return the settings of the learner, if it is the one that takes the steps."""
    learner = config.update.learner_config
    if not learner.fine_tunes:
        return {}
    return {"learner": {"type": config.update.learner, **learner.model_dump(mode="json")}}


def _imitate_demonstrator(
    config: StarPOConfig,
    policy: PretrainedPolicy,
    tuning: FineTuning,
    progress: RunProgress | None,
    work: Work,
    store: Store,
    placement: ModelPlacement,
) -> Iterator[Output]:
    from starpo.ragen.agents.policy.load import load_tokenizer
    from starpo.ragen.agents.policy.source import resolve_policy
    from starpo.ragen.envs import make
    from starpo.ragen.learning.demonstrations import demonstrate_turns

    fault = make(config.environment).replay_fault
    excluded = excluded_states(held_out(config))
    played = config.environment, config.agent, config.rollout.max_response_tokens, excluded
    tokenizer = load_tokenizer(resolve_policy(policy))
    demonstrations = demonstrate_turns(tuning, *played, tokenizer, tuning.demonstration_turns)
    with store.new_folder() as folder:
        headline = _fine_tune(config, policy, demonstrations, folder, progress, placement)
        is_deterministic = Device.here().is_repeatable
        yield Output("checkpoint", folder, headline, is_deterministic=is_deterministic, replay_fault=fault)


def _imitate_episodes(
    config: StarPOConfig,
    policy: PretrainedPolicy,
    tuning: FineTuning,
    progress: RunProgress | None,
    work: Work,
    store: Store,
    placement: ModelPlacement,
) -> Iterator[Output]:
    episodes = tokenised_episodes(chosen_episodes(store, work.inputs, tuning, config), policy, config)
    for line in episode_lines(episodes):
        _log.info(line)
    with store.new_folder() as folder:
        headline = _fine_tune(config, policy, episodes, folder, progress, placement)
        if episodes.num_texts or len(episodes.left_out):
            headline |= {"num_texts": float(episodes.num_texts), "num_left_out": float(len(episodes.left_out))}
        headline |= {"num_excluded": float(episodes.num_excluded)}
        yield Output("checkpoint", folder, headline, is_deterministic=Device.here().is_repeatable)


def _fine_tune(
    config: StarPOConfig,
    policy: PretrainedPolicy,
    data: "ImitationData",
    folder: Path,
    progress: RunProgress | None,
    placement: ModelPlacement,
) -> dict[str, float]:
    """Fine-tune the policy, by the learner if it can; return the headline numbers."""
    from starpo.ragen.learning.imitation import fine_tune

    is_learners = config.update.learner_config.fine_tunes
    learner = cast("FineTuner", placement.learner.of(config.update)) if is_learners else None
    return fine_tune(policy, data, folder, trained_states(policy), progress.part if progress else None, learner)
