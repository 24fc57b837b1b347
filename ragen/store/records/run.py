"""A run as it is recorded: how it was begun, how it stands, and whether two are the same run."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from starpo.ragen.config.structure import changed_settings
from starpo.ragen.core.errors import ArtifactDamagedError
from starpo.ragen.core.visible import quoted

RunStatus = Literal["running", "completed", "failed"]

_MAX_SHOWN = 5


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Run(_Record):
    """A run, as it was begun."""

    name: str
    """Unique in the store."""
    flow: str
    """Which flow it is a run of."""
    preset: str | None
    """The preset its settings came from; None: none."""
    created: datetime
    """When, in UTC."""
    config: dict[str, Any]
    """The resolved configuration, as JSON."""
    parameters: dict[str, Any] = {}
    """What else the flow was given, such as a replay's base run and range; as JSON."""
    code: dict[str, str] = {}
    """Stage -> version, `stage.role` -> identity of the code that settings name. Empty: not told, as by 0.1.0."""

    @property
    def environment(self) -> str:
        """Type of the environment that it trains on.

        Raises:
            ArtifactDamagedError: If its configuration names none.
        """
        settings = self.config.get("environment")
        if not isinstance(settings, dict) or not isinstance(settings.get("type"), str):
            raise ArtifactDamagedError(
                f"run.json of {self.name} is damaged: its config names no environment.type; restore it from a copy"
            )
        return str(settings["type"])


class RunState(_Record):
    """How a run stands."""

    status: RunStatus = "running"
    """A run whose process was killed stays 'running', with an old heartbeat."""
    heartbeat: datetime
    """When this was last written, in UTC."""
    message: str = ""
    """One line for people: what is being done, or why it failed."""
    metrics: dict[str, float] = {}
    """A few numbers for people."""
    head: str = ""
    """Of a completed run: digest of its last record. Empty: the run goes on, or version 0.1.0 wrote this."""


def other_settings(earlier: Run, later: Run) -> str:
    """Where two runs of one name differ in flow, parameters or settings, for people; "": nowhere."""
    return _listed(_identity(earlier), _identity(later))


def other_code(earlier: Run, later: Run) -> str:
    """Where they differ in what they are made with; "": nowhere."""
    if earlier.code and earlier.code != later.code:
        return _listed(earlier.code, later.code)
    return "" if earlier.code == later.code else "  it does not say with which, as runs of version 0.1.0 do not"


def _identity(run: Run) -> dict[str, Any]:
    """What a run of the same name must agree on."""
    return {"flow": run.flow, "parameters": run.parameters, **run.config}


def _listed(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    lines = [f"{path}: was {quoted(was)}, is {quoted(now)}" for path, (was, now) in changed_settings(old, new)]
    more = [f"and {len(lines) - _MAX_SHOWN} more"] if len(lines) > _MAX_SHOWN else []
    return "\n".join(f"  {line}" for line in [*lines[:_MAX_SHOWN], *more])
