"""Names for people: a run's configuration, the keys of its stages' artifacts, and how it stands.

    <store>/runs/<run>/run.json                 flow, preset, resolved configuration, when it was made
    <store>/runs/<run>/iterations/00012.json    stage -> {kind: key}
    <store>/runs/<run>/state.json               running | completed | failed, heartbeat, message, metrics

Nothing here decides what is computed: that follows from keys alone. Every file is replaced in one step. A run is
written by one process at a time (its flow's), by any number of its threads; anyone may read it meanwhile.
"""

import difflib
import json
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from ragen.errors import ArtifactDamagedError, StoreError
from ragen.store.artifacts import checked_name
from ragen.store.keys import as_json, canonical_json
from ragen.store.location import Location

RunStatus = Literal["running", "completed", "failed"]

_MAX_SHOWN = 5
_WRITING = threading.Lock()  # of the process: every task opens a Store of its own

M = TypeVar("M", bound="_Record")


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


StageKeys = dict[str, dict[str, str]]
"""Stage -> {kind: key}."""


class Runs:
    """The runs of one store."""

    def __init__(self, location: Location) -> None:
        self._location = location

    def create(self, run: str, *, flow: str, preset: str | None, config: Mapping[str, Any]) -> Run:
        """Begin a run, or take it up again: the same name with the same configuration is the same run.

        Args:
            run: Its name.
            flow: Name of the flow.
            preset: Name of the preset, for people; it may differ when a run is taken up again.
            config: The resolved configuration, as JSON.

        Raises:
            StoreError: If the name is taken by a run of another flow or configuration; the message says what differs.
        """
        record = Run(
            name=checked_name(run, "run name"),
            flow=flow,
            preset=preset,
            created=datetime.now(UTC),
            config=as_json(config),
        )
        earlier = self._read(Run, f"runs/{run}/run.json")
        if earlier is None:
            self._write(f"runs/{run}/run.json", record)
            return record
        differences = _differences({"flow": earlier.flow, **earlier.config}, {"flow": flow, **record.config})
        if differences:
            raise StoreError(
                f"a run named '{run}' exists in {self._location.name} with other settings:\n"
                + "\n".join(f"  {line}" for line in differences[:_MAX_SHOWN])
                + (f"\n  and {len(differences) - _MAX_SHOWN} more" if len(differences) > _MAX_SHOWN else "")
                + "\nGive this run another name, or use the settings of the earlier one to continue it."
            )
        return earlier

    def get(self, run: str) -> Run:
        """A run by its name.

        Raises:
            StoreError: If there is none; the message names those that are near.
        """
        record = self._read(Run, f"runs/{checked_name(run, 'run name')}/run.json")
        if record is None:
            names = self._location.names("runs")
            near = difflib.get_close_matches(run, names, n=3, cutoff=0.6) or names[-3:]
            hint = f"did you mean {', '.join(near)}?" if near else "there are no runs in it yet: start one first."
            raise StoreError(f"there is no run '{run}' in {self._location.name}; {hint}")
        return record

    def list(self) -> list[Run]:
        """All runs, newest first."""
        names = self._location.names("runs")
        records = [self._read(Run, f"runs/{name}/run.json") for name in names if not name.startswith(".")]
        return sorted((r for r in records if r is not None), key=lambda r: (r.created, r.name), reverse=True)

    def record_stage(self, run: str, iteration: int, stage: str, keys: Mapping[str, str]) -> None:
        """Note which artifacts a stage of an iteration made: kind -> key. Noting the same again changes nothing."""
        path = f"runs/{checked_name(run, 'run name')}/iterations/{iteration:05d}.json"
        with _WRITING:
            stages = self._stages(path)
            if stages.get(stage) != dict(keys):
                self._location.replace(path, _json({**stages, stage: dict(keys)}))

    def iterations(self, run: str) -> dict[int, StageKeys]:
        """Iteration -> stage -> {kind: key}, in ascending order; empty where nothing was recorded."""
        folder = f"runs/{checked_name(run, 'run name')}/iterations"
        names = [name for name in self._location.names(folder) if name.removesuffix(".json").isdigit()]
        return {int(name.removesuffix(".json")): self._stages(f"{folder}/{name}") for name in sorted(names)}

    def iteration(self, run: str, iteration: int) -> StageKeys:
        """Stage -> {kind: key} of one iteration; empty where nothing was recorded."""
        return self._stages(f"runs/{checked_name(run, 'run name')}/iterations/{iteration:05d}.json")

    def set_state(
        self, run: str, status: RunStatus, message: str = "", metrics: Mapping[str, float] | None = None
    ) -> RunState:
        """Say how a run stands; the heartbeat is now.

        Args:
            run: Its name.
            status: running, completed or failed.
            message: One line for people.
            metrics: Numbers for people; None: those of before.
        """
        path = f"runs/{checked_name(run, 'run name')}/state.json"
        with _WRITING:
            if metrics is None:
                earlier = self._read(RunState, path)
                metrics = earlier.metrics if earlier else {}
            state = RunState(status=status, heartbeat=datetime.now(UTC), message=message, metrics=dict(metrics))
            self._write(path, state)
        return state

    def state(self, run: str) -> RunState | None:
        """How a run stands; None: it has never said."""
        return self._read(RunState, f"runs/{checked_name(run, 'run name')}/state.json")

    def _stages(self, path: str) -> StageKeys:
        try:
            return json.loads(self._location.read(path))
        except FileNotFoundError:
            return {}
        except json.JSONDecodeError as error:
            raise self._unreadable(path, str(error)) from error

    def _read(self, model: type[M], path: str) -> M | None:
        try:
            return model.model_validate_json(self._location.read(path))
        except FileNotFoundError:
            return None
        except ValidationError as error:
            raise self._unreadable(path, error.errors()[0]["msg"]) from error

    def _write(self, path: str, record: _Record) -> None:
        self._location.replace(path, _json(record.model_dump(mode="json")))

    def _unreadable(self, path: str, fault: str) -> ArtifactDamagedError:
        return ArtifactDamagedError(
            f"{self._location.name.rstrip('/')}/{path} cannot be read ({fault}). Artifacts are untouched: restore the "
            "file from a copy, or delete it and start the run again, which reuses every artifact."
        )


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n").encode()


def _differences(old: Any, new: Any, place: str = "") -> list[str]:
    """Settings that differ, by dotted path, with both values."""
    if isinstance(old, dict) and isinstance(new, dict):
        lines: list[str] = []
        for name in sorted({*old, *new}):
            lines += _differences(old.get(name), new.get(name), f"{place}.{name}" if place else name)
        return lines
    return [] if canonical_json(old) == canonical_json(new) else [f"{place}: was {old!r}, is {new!r}"]
