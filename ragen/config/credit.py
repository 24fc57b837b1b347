"""What settings alone say against measuring the credit of turns; `ragen.runs.creditable` asks the environment too."""

from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.reward import RewardConfig
from starpo.ragen.config.rollout import RolloutConfig
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.core.lookup import attached, needs
from starpo.ragen.core.registry import REWARDS
from starpo.ragen.envs.base import EnvironmentSettings
from starpo.ragen.envs.make import environment_type


def check_credit_settings(
    environment: EnvironmentSettings, agent: AgentConfig, rollout: RolloutConfig, reward: RewardConfig
) -> None:
    """Check that the policy alone plays from states of the environment, and that a continuation is rewarded alone.

    Raises:
        ConfigError: If not; the message says why.
    """
    if environment_type(environment.type).plays:
        raise ConfigError(
            f"episodes of '{environment.type}' are played by a program, whose state between two turns cannot be "
            "rebuilt and continued: credit needs turns that are actions of an environment"
        )
    if rollout.search is not None:
        raise ConfigError(
            f"the responses are chosen by search ('{rollout.search.type}'), so a continuation of the policy alone does "
            "not have their value: credit needs a run without rollout.search"
        )
    if agent.shows_images:
        raise ConfigError("prompts show images, which continuations of stored turns do not carry yet")
    for name in reward.components:
        if "store" in needs(REWARDS, name):
            raise ConfigError(
                f"reward component '{name}' asks a server, which would have to judge every continuation: credit needs "
                "a run without it, or a replay with another reward (starpo replay)"
            )
        model = attached(REWARDS, name, "options")
        options = model.model_validate(reward.options.get(name, {})) if model else None
        if getattr(options, "frequent_texts", 0):
            raise ConfigError(
                f"reward component '{name}' compares the texts of a whole rollout, so a single continuation has no "
                f"reward of its own: credit needs reward.options.{name}.frequent_texts = 0, by a replay too"
            )
