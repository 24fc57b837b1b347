"""Registries: a name in a setting -> the one place that implements it, imported only when used.

A registry is a plain dictionary `name -> "module:attribute"`. Listing the names costs no import, so settings can be
validated and shown without torch; `load` imports the implementation. Adding an environment, reward, filter,
advantage estimator, engine or learner is one new file and one line in its registry.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from pydantic import AfterValidator, WithJsonSchema

from ragen.errors import ConfigError, RegistryError, StarPOError
from ragen.faults import describe_fault

ENVIRONMENTS: dict[str, str] = {
    "bandit": "ragen.envs.bandit:Bandit",
    "sokoban": "ragen.envs.sokoban:Sokoban",
    "frozen_lake": "ragen.envs.frozen_lake:FrozenLake",
}
"""Classes derived from `ragen.envs.base.Environment`."""

DEMONSTRATORS: dict[str, str] = {
    "bandit": "ragen.policy.demonstrations.bandit:demonstrate",
    "sokoban": "ragen.policy.demonstrations.sokoban:demonstrate",
    "frozen_lake": "ragen.policy.demonstrations.frozen_lake:demonstrate",
}
"""By environment type, functions `(environment, skill, rng) -> Demonstration` of one mediocre decision."""

LESSONS: dict[str, str] = {
    "bandit": "ragen.policy.demonstrations.bandit:lessons",
}
"""By environment type, functions `settings -> tuple of settings` to be demonstrated in turn before training on
`settings`; an environment that is not here is demonstrated as it is."""

REWARDS: dict[str, str] = {
    "environment": "ragen.reward.components:environment_reward",
    "format": "ragen.reward.components:format_penalty",
    "forfeit": "ragen.reward.components:forfeited_actions",
}
"""Functions `(turns: pa.Table, RewardConfig) -> float64 [rows]`; a turn's total is the sum of those that
`reward.components` names."""

FILTERS: dict[str, str] = {
    "none": "ragen.filter.strategies:keep_all",
    "top_fraction": "ragen.filter.strategies:top_fraction",
    "top_k": "ragen.filter.strategies:top_k",
    "top_p_linear": "ragen.filter.strategies:top_p_linear",
    "top_p_softmax": "ragen.filter.strategies:top_p_softmax",
    "min_p": "ragen.filter.strategies:min_p",
}
"""Functions `(scores: float64 [groups], FilterConfig) -> bool [groups]`; a larger score is better."""

ADVANTAGES: dict[str, str] = {
    "gae": "ragen.objectives.advantages:gae",
    "bi_level_gae": "ragen.objectives.advantages:bi_level_gae",
    "grpo": "ragen.objectives.advantages:group_relative",
    "grpo_batch": "ragen.objectives.advantages:batch_relative",
    "rloo": "ragen.objectives.advantages:leave_one_out",
    "reinforce": "ragen.objectives.advantages:raw_return",
}
"""Pure functions that estimate advantages."""

AGENT: dict[str, str] = {
    "prompt": "ragen.agent.prompt",
    "parser": "ragen.agent.parser",
}
"""What turns observations into prompts and responses into actions: whole modules, since settings choose among the texts
in them. Part of the key of whatever an agent plays or imitates."""

LOSSES: dict[str, str] = {
    "loss": "ragen.objectives.losses",
    "kl": "ragen.objectives.kl:KL_ESTIMATORS",
}
"""What an update minimises, and the estimators of the divergence in it."""

ENGINES: dict[str, str] = {
    "torch": "ragen.rollout.torch_engine:TorchEngine",
    "vllm": "ragen.rollout.vllm_engine:VLLMEngine",
    "openai": "ragen.rollout.openai_engine:OpenAIEngine",
}
"""Classes that implement `ragen.rollout.engine.RolloutEngine`."""

LEARNERS: dict[str, str] = {
    "torch": "ragen.learn.torch_learner:TorchLearner",
    "deepspeed": "ragen.learn.deepspeed_learner:DeepSpeedLearner",
}
"""Classes that implement `ragen.learn.learner.Learner`."""

AUDITS: dict[str, str] = {
    "duplicates": "ragen.audit.responses:duplicate_responses",
    "formats": "ragen.audit.responses:invalid_formats",
    "actions": "ragen.audit.actions:actions_without_effect",
    "rewards": "ragen.audit.rewards:rewards_add_up",
    "reasoning": "ragen.audit.reasoning:reasoning_against_board",
    "groups": "ragen.audit.groups:groups_by_reason",
    "outliers": "ragen.audit.outliers:longest_and_oddest",
    "errors": "ragen.audit.errors:error_rows",
}
"""Functions `ragen.audit.database.Database -> ragen.audit.finding.Finding`: questions to what a run has stored."""

CLAIMS: dict[str, str] = {
    "bandit": "ragen.audit.claims.bandit:claims",
    "sokoban": "ragen.audit.claims.sokoban:claims",
    "frozen_lake": "ragen.audit.claims.frozen_lake:claims",
}
"""By environment type, functions `(observation, reasoning) -> list[Claim]`: what the reasoning says of the board."""


def load(registry: Mapping[str, str], name: str) -> Any:
    """Import what `name` stands for.

    Raises:
        ConfigError: If the registry has no such name; the message lists those it has.
        RegistryError: If what it stands for cannot be imported; the message names the file, the line and the fault.
    """
    return _resolve(name, registry[known(registry, name)])


def known(registry: Mapping[str, str], name: str) -> str:
    """Return `name` if the registry has it.

    Raises:
        ConfigError: Otherwise; the message lists the names there are.
    """
    if name not in registry:
        raise ConfigError(f"'{name}' is not known here; known: {', '.join(sorted(registry))}")
    return name


def registered(registry: Mapping[str, str]) -> tuple[AfterValidator, WithJsonSchema]:
    """Annotations for a string setting that must name an entry: `Annotated[str, *registered(FILTERS)]`."""
    return (
        AfterValidator(lambda name: known(registry, name)),
        WithJsonSchema({"type": "string", "enum": sorted(registry)}),
    )


def _resolve(name: str, target: str) -> Any:
    module, attribute = target.split(":")
    try:
        return getattr(import_module(module), attribute)
    except StarPOError:
        raise
    except Exception as error:
        raise RegistryError(
            f"'{name}' (registered as {target}) cannot be loaded: {describe_fault(error, module)}. Mend that file, or "
            "take its line out of ragen/registry.py"
        ) from error
