"""Whether the credit of turns can be measured: what cannot be played again, copied and rewarded alone is refused.

settings -> check_creditable, credit_fault -> nothing, or a sentence    turns -> sampled_by -> who played them, and how
"""

from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import ConfigError, StarPOError, first_line
from starpo.ragen.core.lookup import attached, needs
from starpo.ragen.core.registry import REWARDS
from starpo.ragen.envs.make import check_can_be_cloned, environment_type
from starpo.ragen.envs.sources import check_files
from starpo.ragen.runs.verify.unreplayable import unreplayable
from starpo.ragen.store import Store


def check_creditable(config: StarPOConfig) -> None:
    """Check that states between turns can be rebuilt and continued, and a continuation rewarded alone.

    Args:
        config: Settings of an iteration.

    Raises:
        ConfigError: If not; the message says why.
        EnvironmentFault: If a file of the environment has changed.
        SourceMissingError: If one cannot be read.
    """
    _check_environment(config)
    _check_reward(config)


def credit_fault(config: StarPOConfig) -> str:
    """Explain why a run that trains on the credit of its turns, in some phase of its schedule, cannot measure it.

    Returns:
        A sentence; empty if it can, or does not.
    """
    for phase in config.phases:
        try:
            if "credits" in phase.update.needs:
                check_creditable(phase)
        except StarPOError as error:
            return f"update.advantage = '{phase.update.advantage}' trains on measured credit, and {first_line(error)}"
    return ""


def sampled_by(store: Store, config: StarPOConfig, turns: str) -> tuple[StarPOConfig, str]:
    """Return the settings with which stored turns were played, and the key of the checkpoint that played them.

    Args:
        store: The store.
        config: Settings of the run.
        turns: Key of the turns of an iteration's first rollout.

    Raises:
        ConfigError: If no checkpoint of this store played them.
        ArtifactMissingError: If their manifest is not stored.
    """
    played = store.lasting_manifest("turns", turns)
    if "checkpoint" not in played.inputs:
        raise ConfigError(
            f"turns/{turns} were imported, and no checkpoint here played them, so they cannot be continued: credit "
            "the turns of a run that was trained here"
        )
    return config.at(int(played.settings["iteration"])), played.inputs["checkpoint"]


def _check_environment(config: StarPOConfig) -> None:
    environment = config.environment
    if environment_type(environment.type).plays:
        raise ConfigError(
            f"episodes of '{environment.type}' are played by a program, whose state between two turns cannot be "
            "rebuilt and continued: credit a run whose turns are actions of an environment"
        )
    if config.rollout.search is not None:
        raise ConfigError(
            f"the responses were chosen by search ('{config.rollout.search.type}'), so a continuation of the policy "
            "alone would not have their value: credit a run without rollout.search"
        )
    if config.agent.shows_images:
        raise ConfigError("its prompts show images, which continuations of stored turns do not carry yet")
    check_files(environment)
    if fault := unreplayable(environment, None):
        raise ConfigError(f"{fault}, so a state between two turns cannot be rebuilt from its actions")
    check_can_be_cloned(environment, "continuations need")


def _check_reward(config: StarPOConfig) -> None:
    for name in config.reward.components:
        if "store" in needs(REWARDS, name):
            raise ConfigError(
                f"reward component '{name}' asks a server, which would have to judge every continuation: credit a run "
                "without it, or a replay with another reward (starpo replay)"
            )
        model = attached(REWARDS, name, "options")
        options = model.model_validate(config.reward.options.get(name, {})) if model else None
        if getattr(options, "frequent_texts", 0):
            raise ConfigError(
                f"reward component '{name}' compares the texts of a whole rollout, so a single continuation has no "
                f"reward of its own: replay the run with reward.options.{name}.frequent_texts = 0"
            )
