"""Stored episodes that fine-tuning imitates: their keys, which of them are chosen, and what a run says of them.

settings -> keys of rollouts -> StoredEpisodes, as tokens of the policy
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from starpo.ragen.agents.evaluation.panel import excluded_states
from starpo.ragen.config.policy import FineTuning, PretrainedPolicy, TinyPolicy
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.store import Store
from starpo.ragen.store.attempts import numbered, of_kind
from starpo.tasks.held_out import held_out

if TYPE_CHECKING:
    from starpo.ragen.learning.stored_episodes import StoredEpisodes


def episode_keys(policy: TinyPolicy | PretrainedPolicy, store_url: str) -> dict[str, str]:
    """Return role -> key of the stored episodes that the settings name (`named_rollouts`); empty without any.

    Raises:
        StoreError: If they are not recorded in the store.
    """
    tuning = policy.fine_tuning if isinstance(policy, PretrainedPolicy) else None
    if tuning is None or not tuning.runs:
        return {}
    from starpo.ragen.store.named_rollouts import named_rollouts

    return named_rollouts(Store(store_url), tuning.runs)


def has_texts(stored: Mapping[str, str], store_url: str) -> bool:
    """Whether the tokens of some of these stored episodes (`episode_keys`) have to be made of their texts.

    Raises:
        StoreError: If they cannot be read.
    """
    keys = of_kind(stored, "turns")
    if not keys:
        return False
    from starpo.schemas.texts import is_text

    store = Store(store_url)
    tables = (store.read_table("turns", key, ["finish_reason", "response_ids"]) for key in keys)
    return any(is_text(row) for table in tables for row in table.to_pylist())


def imitation_lines(config: StarPOConfig, store_url: str) -> Iterator[str]:
    """Yield what a run will imitate of stored episodes, and what is left out of it, a line each; none without any.

    Raises:
        StarPOError: If they are not stored, none of them can be imitated, or the policy cannot be read.
    """
    policy, stored = config.policy, episode_keys(config.policy, store_url)
    if not stored:
        return
    assert isinstance(policy, PretrainedPolicy)
    assert policy.fine_tuning is not None
    episodes = chosen_episodes(Store(store_url), stored, policy.fine_tuning, config)
    yield from episode_lines(tokenised_episodes(episodes, policy, config))


def episode_lines(episodes: "StoredEpisodes") -> Iterator[str]:
    """Yield what is imitated, and what is left out, a line each."""
    yield f"fine-tuning: {episodes.summary}"
    for line in episodes.left_out.lines():
        yield f"fine-tuning: {line}"


def chosen_episodes(
    store: Store, stored: Mapping[str, str], tuning: FineTuning, config: StarPOConfig
) -> "StoredEpisodes":
    """Choose the stored episodes to imitate.

    Raises:
        ConfigError: If the settings choose none, or prompts show images.
        ArtifactMissingError: If a dataset is no longer stored.
    """
    from starpo.ragen.learning.stored_episodes import choose_episodes

    # no state is left to train on outside a panel that has them all
    panels = [panel for panel in held_out(config) if not panel.is_exhaustive]
    return choose_episodes(_rollouts(store, stored), tuning, excluded_states(panels))


def tokenised_episodes(episodes: "StoredEpisodes", policy: PretrainedPolicy, config: StarPOConfig) -> "StoredEpisodes":
    """Return episodes as tokens of a policy. No conversation of others is longer than what the policy sees at play.

    Raises:
        ConfigError: If the tokens of an episode are those of another tokenizer, or every episode is left out.
        PolicyError: If the policy cannot be read.
        TemplateError: If conversations have to be tokenised, and there is no chat template that can be used.
    """
    from starpo.ragen.agents.policy.folder import num_positions
    from starpo.ragen.agents.policy.load import load_tokenizer
    from starpo.ragen.agents.policy.source import resolve_policy

    folder, allowed = resolve_policy(policy), config.rollout.max_context_tokens
    return episodes.tokenised(load_tokenizer(folder), config.agent, min(num_positions(folder) or allowed, allowed))


def _rollouts(store: Store, stored: Mapping[str, str]) -> Iterator[tuple[pa.Table, pa.Table | None, pa.Table | None]]:
    """Yield turns, rewards and selection of each rollout; the latter two None without rewards."""
    from starpo.ragen.runs.stored_images import image_kinds

    for number in range(len(of_kind(stored, "turns"))):
        turns = stored[numbered("turns", number)]
        if image_kinds(store.manifest("turns", turns)):
            raise ConfigError(
                "policy.fine_tuning.runs names a run whose prompts show images, which a pretrained policy does not "
                "take; name runs with agent.observation = 'text'"
            )
        rewards, selection = (
            store.read_table(kind, stored[role]) if (role := numbered(kind, number)) in stored else None
            for kind in ("rewards", "selection")
        )
        yield store.read_table("turns", turns), rewards, selection
