"""`make`: an environment from its settings."""

from typing import Any

from ragen.envs.base import Environment, EnvironmentSettings
from ragen.registry import ENVIRONMENTS, load


def make(settings: EnvironmentSettings) -> Environment[Any]:
    """Build the environment that `settings.type` names; it must be reset before use.

    Raises:
        ConfigError: If no environment of that type is registered.
    """
    return load(ENVIRONMENTS, settings.type)(settings)
