"""The record of a run: its configuration, its state, and whether two records describe the same run."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, FiniteFloat

from starpo.ragen.config.structure import changed_settings
from starpo.ragen.core.errors import ArtifactDamagedError
from starpo.ragen.core.visible import quoted

RunStatus = Literal["running", "completed", "failed", "cancelled"]

_MAX_SHOWN = 5


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class RunRecord(_Record):
    """The record of a run, written when it was created."""

    name: str
    """Name, unique in the store."""
    flow: str
    """Name of the flow."""
    preset: str | None
    """Preset that its settings came from; None: no preset. An import without one knows only some of its settings
    (`stated`)."""
    created: AwareDatetime
    """Creation time, in UTC."""
    config: dict[str, Any]
    """The resolved configuration, as JSON."""
    parameters: dict[str, Any] = {}
    """Other arguments of the flow, such as a replay's base run and range, as JSON."""
    code: dict[str, str] = {}
    """Stage -> version, `stage.role` -> identity of the code that settings name. Empty: not recorded."""

    @property
    def environment(self) -> str:
        """Type of the environment that it trains on.

        Raises:
            ArtifactDamagedError: If its configuration has none.
        """
        settings = self.config.get("environment")
        if not isinstance(settings, dict) or not isinstance(settings.get("type"), str):
            raise ArtifactDamagedError(
                f"run.json of {self.name} is damaged: its config names no environment.type; restore it from a copy"
            )
        return str(settings["type"])

    @property
    def stated(self) -> dict[str, Any]:
        """Settings that it states: all or, of an import without a preset, those that were applied to what it read."""
        if self.flow == "import" and self.preset is None:
            return {name: self.config[name] for name in ("reward", "filter") if name in self.config}
        return self.config


class RunState(_Record):
    """State of a run."""

    status: RunStatus = "running"
    """'cancelled': stopped from outside. A run whose process was killed stays 'running', with an old heartbeat."""
    heartbeat: AwareDatetime
    """Time of the last write, in UTC."""
    message: str = ""
    """One line for display: the current activity, or why the run ended."""
    metrics: dict[str, FiniteFloat] = {}
    """A few numbers for display."""
    warning: str = ""
    """Why the run learns nothing at present, and what to try; empty if it learns."""
    head: str = ""
    """Digest of the last record of a completed run. Empty: the run has not completed."""


def other_settings(earlier: RunRecord, later: RunRecord) -> str:
    """Describe the differences in flow, parameters or settings between two runs of one name; "" if there are none."""
    return _listed(_identity(earlier), _identity(later))


def other_code(earlier: RunRecord, later: RunRecord) -> str:
    """Describe the differences in the code that they were made with; "" if there are none."""
    return _listed(earlier.code, later.code)


def how_to_change(earlier: RunRecord, later: RunRecord) -> str:
    """Advise on what a run of another length reuses, and on `starpo fork`."""
    if earlier.flow != "starpo" or later.flow != "starpo":
        return ""
    changed = {path.partition(".")[0] for path, _ in changed_settings(earlier.config, later.config)}
    length, fork = "", ""
    if "iterations" in changed:
        length = (
            " A run of another length shares all iterations that both have, unless a learning rate decays over the "
            "length (update.optimiser.decay): then it shares what comes before the first update."
        )
    if changed <= {"iterations", "rollout", "reward", "filter", "update"}:
        fork = (
            f" `starpo fork {later.name} --from N --set PATH=VALUE` changes settings of rollout, reward, filter or "
            f"update from iteration N on{', and keeps the length' if length else ''}."
        )
    return length + fork


def _identity(run: RunRecord) -> dict[str, Any]:
    """Return the values on which runs of the same name must agree."""
    return {"flow": run.flow, "parameters": run.parameters, **run.config}


def _listed(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    lines = [f"{path}: was {quoted(was)}, is {quoted(now)}" for path, (was, now) in changed_settings(old, new)]
    more = [f"and {len(lines) - _MAX_SHOWN} more"] if len(lines) > _MAX_SHOWN else []
    return "\n".join(f"  {line}" for line in [*lines[:_MAX_SHOWN], *more])
