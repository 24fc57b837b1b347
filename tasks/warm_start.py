"""(configuration, stored episodes to imitate) -> the first checkpoint of a run."""

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from starpo.ragen.agents.evaluation.panel import excluded_states
from starpo.ragen.agents.policy.initial_states import read_states, write_states
from starpo.ragen.config.device import Device
from starpo.ragen.config.model_files import model_place
from starpo.ragen.config.policy import FineTuning, PretrainedPolicy, TinyPolicy
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.core.registry import SCENES, agent_code
from starpo.ragen.envs.make import environment_code, environment_type
from starpo.ragen.runs.loaded_learner import LoadedLearner
from starpo.ragen.runs.placement import ModelPlacement
from starpo.ragen.runs.work import Output, Work
from starpo.ragen.store import Store
from starpo.ragen.store.attempts import numbered, of_kind
from starpo.ragen.store.named_rollouts import named_rollouts
from starpo.schemas.manifest import Stage
from starpo.schemas.texts import is_text
from starpo.tasks.progress import RunProgress
from starpo.tasks.rollout import held_out

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from starpo.ragen.learning.examples import Lessons
    from starpo.ragen.learning.learners.learner import FineTuner
    from starpo.ragen.learning.stored_episodes import StoredEpisodes

STAGE = Stage(name="warm_start", version=4)
_PRETRAINED = Stage(name="warm_start", version=5)
"""The stage of a policy with a tokenizer and a chat template of others. The keys of its rollouts and evaluations depend
on this one, so that the version also stands for the ids of its prompts."""

_log = logging.getLogger(__name__)

_OF_DEMONSTRATIONS = {"demonstrator", "demonstration_turns", "demonstration_skill"}
_OF_EPISODES = {"runs", "episodes", "min_return"}


def stored_lessons(policy: TinyPolicy | PretrainedPolicy, store_url: str) -> dict[str, str]:
    """Return role -> key of the stored episodes that the settings name (`named_rollouts`); empty without any.

    Raises:
        StoreError: If they are not recorded in the store.
    """
    tuning = policy.fine_tuning if isinstance(policy, PretrainedPolicy) else None
    return named_rollouts(Store(store_url), tuning.runs) if tuning is not None and tuning.runs else {}


def has_texts(stored: Mapping[str, str], store_url: str) -> bool:
    """Whether the tokens of some of these stored episodes (`stored_lessons`) have to be made of their texts.

    Raises:
        StoreError: If they cannot be read.
    """
    keys = of_kind(stored, "turns")
    if not keys:
        return False
    store = Store(store_url)
    tables = (store.read_table("turns", key, ["finish_reason", "response_ids"]) for key in keys)
    return any(is_text(row) for table in tables for row in table.to_pylist())


def imitation_lines(config: StarPOConfig, store_url: str) -> Iterator[str]:
    """Yield what a run will imitate of stored episodes, and what is left out of it, a line each; none without any.

    Raises:
        StarPOError: If they are not stored, none of them can be imitated, or the policy cannot be read.
    """
    policy, stored = config.policy, stored_lessons(config.policy, store_url)
    if not stored:
        return
    from starpo.ragen.agents.policy.load import load_tokenizer
    from starpo.ragen.agents.policy.source import resolve_policy

    assert isinstance(policy, PretrainedPolicy)
    assert policy.fine_tuning is not None
    episodes = _episodes(Store(store_url), stored, policy.fine_tuning, config)
    tokenised = episodes.tokenised(load_tokenizer(resolve_policy(policy)), config.agent, _max_tokens(config))
    yield from _lines(tokenised)


def _lines(episodes: "StoredEpisodes") -> Iterator[str]:
    yield f"fine-tuning: {episodes.summary}"
    for line in episodes.left_out.lines():
        yield f"fine-tuning: {line}"


def warm_start(
    config: StarPOConfig,
    stored: Mapping[str, str] | None = None,
    progress: RunProgress | None = None,
    *,
    should_render: bool = False,
) -> Work:
    """Create the tiny policy and train it on demonstrations, or take a pretrained one, optionally fine-tuned.

    Args:
        config: All settings.
        stored: Role -> key of the stored episodes to imitate, from `stored_lessons`.
        progress: Receives the progress of the training.
        should_render: Whether some of them are texts (`has_texts`), so that the chat template has an effect.
    """
    policy = config.policy
    settings: dict[str, Any] = {"policy": policy.model_dump(mode="json")}
    code: dict[str, str] = {}
    if config.fresh:  # all other keys depend on this checkpoint, so no stored artifact is reused
        settings["fresh"] = config.fresh
    player = policy if isinstance(policy, TinyPolicy) else policy.fine_tuning
    is_replaying = isinstance(player, FineTuning) and bool(player.runs)
    if player is None:
        del settings["policy"]["fine_tuning"]
    elif isinstance(player, FineTuning):
        idle = _OF_DEMONSTRATIONS | {"runs"} if is_replaying else _OF_EPISODES
        settings["policy"]["fine_tuning"] = player.model_dump(mode="json", exclude=idle)
        if should_render:
            names = {"chat_template", "template_system_prompt"}
            settings["rendering"] = config.agent.model_dump(mode="json", include=names)
            settings["rendering"]["max_context_tokens"] = config.rollout.max_context_tokens
        if (learner := config.update.learner_config).fine_tunes:
            settings["learner"] = {"type": config.update.learner, **learner.model_dump(mode="json")}
    if player is not None:
        settings["excluded_panels"] = sorted({panel.digest for panel in held_out(config)})
    if player is not None and not is_replaying:
        from starpo.ragen.agents.policy.tokenizer import demonstrator, extra_vocabulary, vocabulary_digest

        if isinstance(policy, TinyPolicy):
            settings["vocabulary"] = vocabulary_digest(extra_vocabulary(policy, config.environment, config.agent.form))
        settings |= {
            "environment": config.environment.model_dump(mode="json"),
            "agent": config.agent.model_dump(mode="json"),
            "max_response_tokens": config.rollout.max_response_tokens,
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

    def do(work: Work, store: Store, placement: ModelPlacement) -> Iterator[Output]:
        from starpo.ragen.envs import make

        is_played = player is not None and not is_replaying
        fault = make(config.environment).replay_fault if is_played else ""
        episodes = (
            _episodes(store, work.inputs, player, config) if isinstance(player, FineTuning) and player.runs else None
        )
        with store.new_folder() as folder:
            headline = _make(config, episodes, folder, placement.learner, progress)
            yield Output("checkpoint", folder, headline, is_deterministic=_is_repeatable(policy), replay_fault=fault)

    stage = STAGE if isinstance(policy, TinyPolicy) else _PRETRAINED
    return Work(stage, ("checkpoint",), do, settings, stored or {}, seed=seed, code=code)


def _is_repeatable(policy: TinyPolicy | PretrainedPolicy) -> bool:
    """Whether the result is reproducible: a pretrained policy is fine-tuned on the GPU if there is one, the embedded
    one always on the CPU."""
    return isinstance(policy, TinyPolicy) or policy.fine_tuning is None or Device.here().is_repeatable


def _episodes(store: Store, inputs: Mapping[str, str], tuning: FineTuning, config: StarPOConfig) -> "StoredEpisodes":
    """Choose the stored episodes to imitate.

    Raises:
        ConfigError: If the settings choose none, or prompts show images.
        ArtifactMissingError: If a dataset is no longer stored.
    """
    from starpo.ragen.learning.stored_episodes import choose_episodes
    from starpo.ragen.runs.stored_images import image_kinds

    def rollouts() -> Iterator[tuple[pa.Table, pa.Table | None, pa.Table | None]]:
        for number in range(len(of_kind(inputs, "turns"))):
            if image_kinds(store.manifest("turns", inputs[numbered("turns", number)])):
                raise ConfigError(
                    "policy.fine_tuning.runs names a run whose prompts show images, which a pretrained policy does not "
                    "take; name runs with agent.observation = 'text'"
                )
            yield (
                store.read_table("turns", inputs[numbered("turns", number)]),
                *(
                    store.read_table(kind, inputs[role]) if (role := numbered(kind, number)) in inputs else None
                    for kind in ("rewards", "selection")
                ),
            )

    # no state is left to train on outside a panel that has them all
    panels = [panel for panel in held_out(config) if not panel.is_exhaustive]
    return choose_episodes(rollouts(), tuning, excluded_states(panels))


def _make(
    config: StarPOConfig,
    episodes: "StoredEpisodes | None",
    folder: Path,
    loaded: LoadedLearner,
    progress: RunProgress | None,
) -> dict[str, float]:
    policy = config.policy
    played = config.environment, config.agent, config.rollout.max_response_tokens, excluded_states(held_out(config))
    on_progress = progress.part if progress else None
    if isinstance(policy, TinyPolicy):
        from starpo.ragen.learning.imitation import imitate

        return imitate(policy, *played, folder, on_progress)
    from starpo.ragen.agents.policy.source import local_folder

    source = model_place(policy.name_or_path)
    met = read_states(local_folder(source)) if source else []
    tuning = policy.fine_tuning
    if tuning is None:
        from starpo.ragen.agents.policy.load import copy_policy

        headline = copy_policy(policy, folder)
        if met:
            write_states(folder, met)
        return headline
    from starpo.ragen.learning.demonstrations import demonstrate_turns
    from starpo.ragen.learning.imitation import fine_tune

    def lessons(tokenizer: "PreTrainedTokenizerBase") -> "Lessons":
        nonlocal episodes
        if episodes is None:
            return demonstrate_turns(tuning, *played, tokenizer, tuning.demonstration_turns)
        episodes = episodes.tokenised(tokenizer, config.agent, _max_tokens(config))
        for line in _lines(episodes):
            _log.info(line)
        return episodes

    learner = cast("FineTuner", loaded.of(config.update)) if config.update.learner_config.fine_tunes else None
    headline = fine_tune(policy, lessons, folder, met, on_progress, learner)
    if episodes is None:
        return headline
    if episodes.num_texts or len(episodes.left_out):
        headline |= {"num_texts": float(episodes.num_texts), "num_left_out": float(len(episodes.left_out))}
    return headline | {"num_excluded": float(episodes.num_excluded)}


def _max_tokens(config: StarPOConfig) -> int:
    """Maximum length of a conversation of others: what the policy may see when it plays."""
    from starpo.ragen.agents.policy.folder import num_positions
    from starpo.ragen.agents.policy.source import resolve_policy

    assert isinstance(config.policy, PretrainedPolicy)
    allowed = config.rollout.max_context_tokens
    return min(num_positions(resolve_policy(config.policy)) or allowed, allowed)
