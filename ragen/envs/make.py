"""`make`: an environment from its settings."""

from typing import Any

from starpo.ragen.core.registry import ENVIRONMENTS, load
from starpo.ragen.envs.base import Environment, EnvironmentSettings


def make(settings: EnvironmentSettings) -> Environment[Any]:
    """Build the environment that `settings.type` names; it must be reset before use.

    Raises:
        ConfigError: If no environment of that type is registered.
    """
    return load(ENVIRONMENTS, settings.type)(settings)
