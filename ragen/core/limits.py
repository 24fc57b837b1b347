"""`CallLimits`: how long calls of third-party code may take (`guard`), from environment variables."""

import os
from collections.abc import Hashable
from contextlib import AbstractContextManager
from functools import cache
from typing import Self, TypeVar

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from starpo.ragen.core.guard import Limit, guarded

S = TypeVar("S", bound=BaseSettings)


class CallLimits(BaseSettings):
    """Limits of calls."""

    model_config = SettingsConfigDict(env_prefix="STARPO_", frozen=True, use_attribute_docstrings=True)

    environment_s: float = Field(default=600.0, gt=0)
    """Time limit in seconds of one call of an environment: of its constructor, of `reset`, or of the steps of a turn.
    In a rollout, a call that takes longer counts as hung: its worker is replaced once, and then the run fails with a
    message. Elsewhere, as for the initial states of a panel, the call fails with its name."""
    plugin_s: float = Field(default=3600.0, gt=0)
    """Time limit in seconds of one call of code of one's own elsewhere: of a reward component, filter, estimator,
    shaping, surrogate, turn order or audit, of a function that returns tasks, or of the import of a module. A call that
    takes longer fails with its name; one of 20 s is named in the log and the run's progress."""

    @property
    def environment_limit(self) -> Limit:
        """Limit of a call of an environment."""
        return Limit(self.environment_s, "STARPO_ENVIRONMENT_S")

    @property
    def plugin_limit(self) -> Limit:
        """Limit of a call of any other code of one's own."""
        return Limit(self.plugin_s, "STARPO_PLUGIN_S")

    @classmethod
    def current(cls) -> Self:
        """Return the limits of the current environment; raises what `read_variables` does."""
        return read_variables(cls)


def environment_call(kind: str) -> AbstractContextManager[None]:
    """Return a context manager around a call of an environment of this type, or tag, outside an episode: guarded,
    named and limited to `CallLimits.environment_s`."""
    return guarded(f"environment '{kind}'", CallLimits.current().environment_limit)


def read_variables(model: type[S], *facts: Hashable) -> S:
    """Read settings from environment variables; again only if one of them, or a fact that defaults use, has changed.

    Raises:
        pydantic.ValidationError: If a variable has an invalid value.
    """
    return _read(model, tuple(map(os.environ.get, _variables(model))), *facts)


@cache
def _variables(model: type[BaseSettings]) -> tuple[str, ...]:
    """Return the names of its variables, in capitals and in small letters: to look these up, at every call of an
    environment, is faster than to go through all variables."""
    names = [f"{model.model_config['env_prefix']}{name}" for name in model.model_fields]
    return (*map(str.upper, names), *map(str.lower, names))


@cache
def _read(model: type[S], _values: tuple[str | None, ...], *_facts: Hashable) -> S:
    return model()
