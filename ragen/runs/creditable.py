"""Whether the credit of turns can be measured: what cannot be played again, copied and rewarded alone is refused.

settings -> check_creditable, credit_fault -> nothing, or a sentence    turns -> sampled_by -> who played them, and how
"""

from starpo.ragen.config.credit import check_credit_settings
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import ConfigError, StarPOError, first_line
from starpo.ragen.envs.make import check_can_be_cloned
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
    check_credit_settings(config.environment, config.agent, config.rollout, config.reward)
    check_files(config.environment)
    if fault := unreplayable(config.environment, None):
        raise ConfigError(f"{fault}, so a state between two turns cannot be rebuilt from its actions")
    check_can_be_cloned(config.environment, "continuations need")


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
            return f"update.advantage = '{phase.update.advantage}' needs measured credit, and {first_line(error)}"
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
