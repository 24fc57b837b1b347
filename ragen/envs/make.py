"""Resolve environment names from the settings: `environment_type`, `settings_type`, `make`, `environment_code`."""

import json
from functools import cache
from typing import Any, Literal

from pydantic import ValidationInfo, create_model

from starpo.ragen.core.errors import RegistryError, StarPOError
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
    """Return the class for a registered name or a `module:attribute`.

    Raises:
        ConfigError: If there is no environment of that name.
        RegistryError: If it cannot be loaded, or is not an `Environment`.
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


def type_of(value: Any) -> Any:
    """Return the `type` of environment settings, validated or raw; None if missing."""
    return value.get("type") if isinstance(value, dict) else getattr(value, "type", None)


def as_its_own(value: Any, _: Any, info: ValidationInfo) -> EnvironmentSettings:
    """Validate settings with the settings model of the environment that they name (pydantic wrap validator).

    Raises:
        ValueError: If there is no such environment, or it cannot be loaded.
    """
    try:
        model = settings_type(type_of(value))
    except StarPOError as error:
        raise ValueError(str(error)) from error
    return model.model_validate_json(json.dumps(value)) if info.mode == "json" else model.model_validate(value)


def environment_code(settings: EnvironmentSettings) -> dict[str, str]:
    """Return role -> `module:attribute` of the environment and its parts, for stage keys."""
    parts = {tag: part for tag, part in settings.tagged().items() if part is not settings}
    of_parts = {f"environment of {tag}": ENVIRONMENTS[part.type] for tag, part in parts.items()}
    return {"environment": ENVIRONMENTS[settings.type], **of_parts}
