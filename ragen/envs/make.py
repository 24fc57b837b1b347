"""Resolve environment names from the settings: `environment_type`, `settings_type`, `make`, `environment_code`; and
`check_can_be_cloned`."""

from functools import cache
from typing import Any

from starpo.ragen.core.errors import ConfigError, RegistryError
from starpo.ragen.core.guard import FOREIGN
from starpo.ragen.core.limits import environment_call
from starpo.ragen.core.lookup import load
from starpo.ragen.core.registry import ENVIRONMENTS
from starpo.ragen.core.settings import with_type
from starpo.ragen.envs.base import Environment, EnvironmentSettings


def make(settings: EnvironmentSettings, *, may_ask: bool = False) -> Environment[Any]:
    """Build the environment that `settings.type` names; it must be reset before use.

    Args:
        settings: Its settings.
        may_ask: Whether its steps may ask a server (`Environment.may_ask`).

    Raises:
        ConfigError: If there is no environment of that type.
        RegistryError: If it cannot be loaded.
        CallLimitError: If its constructor takes longer than `CallLimits.environment_s`.
    """
    implementation = environment_type(settings.type)
    with environment_call(settings.type):
        environment = implementation(settings)
    environment.may_ask = may_ask
    return environment


def check_can_be_cloned(settings: EnvironmentSettings, purpose: str) -> None:
    """Check that an environment, or each part of a mixture, can be cloned.

    Args:
        settings: Its settings.
        purpose: What needs the copies, for the message: "rollout.search needs", say.

    Raises:
        ConfigError: If it cannot be cloned.
    """
    for part in settings.tagged().values():
        environment = make(part)
        environment.reset(seed=0)
        try:
            environment.clone(0)
        except FOREIGN as error:  # environments are third-party code
            raise ConfigError(f"{purpose} copies of the environment, which cannot be made: {error}") from error


def environment_type(name: str) -> type[Environment[Any]]:
    """Return the class for a registered name or a `module:attribute`.

    Raises:
        ConfigError: If there is no environment of that name.
        RegistryError: If it cannot be loaded, or is not an `Environment`.
    """
    implementation = load(ENVIRONMENTS, name)
    if isinstance(implementation, type) and issubclass(implementation, Environment):
        return implementation
    raise RegistryError(
        f"environment '{name}' ({ENVIRONMENTS[name]}) is {implementation!r}; expected a class derived from "
        "starpo.ragen.envs.base.Environment"
    )


@cache
def settings_type(name: str) -> type[EnvironmentSettings]:
    """Return the settings model of an environment, with its name as the `type`.

    Raises:
        ConfigError, RegistryError: As `environment_type`; RegistryError also if the class has no settings model.
    """
    settings = getattr(environment_type(name), "settings_type", None)
    if not (isinstance(settings, type) and issubclass(settings, EnvironmentSettings)):
        raise RegistryError(
            f"environment '{name}' ({ENVIRONMENTS[name]}) has settings_type = {settings!r}; expected a class derived "
            "from starpo.ragen.envs.base.EnvironmentSettings"
        )
    return with_type(settings, name)


def environment_code(settings: EnvironmentSettings) -> dict[str, str]:
    """Return role -> `module:attribute` of the environment and its parts, for stage keys."""
    parts = {tag: part for tag, part in settings.tagged().items() if part is not settings}
    of_parts = {f"environment of {tag}": ENVIRONMENTS[part.type] for tag, part in parts.items()}
    plays = environment_type(settings.type).plays
    return {"environment": ENVIRONMENTS[settings.type], **of_parts} | ({"loop": plays} if plays else {})
