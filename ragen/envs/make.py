"""From a name in the settings to an environment: `environment_type`, `settings_type`, `make`."""

from functools import cache
from typing import Any, Literal

from pydantic import create_model

from starpo.ragen.core.errors import RegistryError
from starpo.ragen.core.lookup import load
from starpo.ragen.core.registry import ENVIRONMENTS
from starpo.ragen.envs.base import Environment, EnvironmentSettings


def make(settings: EnvironmentSettings) -> Environment[Any]:
    """Build the environment that `settings.type` names; it must be reset before use.

    Raises:
        ConfigError: If there is no environment of that type.
        RegistryError: If it cannot be loaded.
    """
    return environment_type(settings.type)(settings)


def environment_type(name: str) -> type[Environment[Any]]:
    """The class that a name, or `module:attribute`, stands for.

    Raises:
        ConfigError: If there is no environment of that name.
        RegistryError: If it cannot be loaded, or is no environment.
    """
    found = load(ENVIRONMENTS, name)
    if isinstance(found, type) and issubclass(found, Environment):
        return found
    raise RegistryError(
        f"environment '{name}' ({ENVIRONMENTS[name]}) is {found!r}; expected a class derived from "
        "starpo.ragen.envs.base.Environment"
    )


@cache
def settings_type(name: str) -> type[EnvironmentSettings]:
    """The settings of an environment, whose `type` is its name.

    Raises:
        ConfigError, RegistryError: As `environment_type`; or if the class has no settings model.
    """
    settings = getattr(environment_type(name), "settings_type", None)
    if not (isinstance(settings, type) and issubclass(settings, EnvironmentSettings)):
        raise RegistryError(
            f"environment '{name}' ({ENVIRONMENTS[name]}) has settings_type = {settings!r}; expected a class derived "
            "from starpo.ragen.envs.base.EnvironmentSettings"
        )
    if settings.model_fields["type"].default == name:
        return settings
    kind: Any = Literal[name]
    return create_model(
        settings.__name__,
        __base__=settings,
        __module__=settings.__module__,
        __doc__=settings.__doc__,
        type=(kind, name),
    )
