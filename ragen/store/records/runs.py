"""Records of named runs: configuration, artifact keys of the stages, and state.

    <store>/runs/<run>/run.json                 flow, preset, resolved configuration, creation time
    <store>/runs/<run>/iterations/00012.json    stage -> {kind: key}, and the digest of the previous record
    <store>/runs/<run>/state.json               running | completed | failed, heartbeat, message, metrics; at the end
                                                also the digest of the last record; see `ragen.store.records.seals`
    <store>/runs/<run>/leases/000001.json       the process that works on it; see `ragen.store.records.leases`

Records never affect what is computed, which depends on keys alone. Every file is replaced atomically. A run is written
by one process at a time (its flow's, which holds the run's lease), by any number of its threads; any process may read
it meanwhile.
"""

import difflib
import logging
import threading
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from starpo.ragen.core.errors import ArtifactDamagedError, StoreError, first_line
from starpo.ragen.core.redaction import without_secrets
from starpo.ragen.store.artifacts.keys import as_json
from starpo.ragen.store.names import checked_name, differing_by_case, is_name, numbers_of
from starpo.ragen.store.records.leases import Lease, holder_of, is_held
from starpo.ragen.store.records.run import RunRecord, RunState, RunStatus, how_to_change, other_code, other_settings
from starpo.ragen.store.records.seals import (
    DIGITS,
    IterationRecord,
    RecordChain,
    Seals,
    StageKeys,
    as_bytes,
    check_seals,
    digest,
    record_path,
    recorded_iterations,
)
from starpo.ragen.store.remote.location import Location

_WRITING = threading.Lock()  # one per process: every task opens its own Store
_CHAINS: dict[tuple[str, str], RecordChain] = {}
"""(store, run) -> its records, as written by this process."""

_log = logging.getLogger(__name__)

M = TypeVar("M", bound=BaseModel)


STALE_AFTER = timedelta(minutes=2)
"""A 'running' run without a heartbeat for this long was interrupted."""


RECORD_ADVICE = (
    "Artifacts are untouched: restore the record from a copy, or start the run again with the same settings, which "
    "reuses every artifact and writes its records anew"
)
"""What to do about a record that was changed."""


class Runs:
    """The runs of one store."""

    def __init__(self, location: Location) -> None:
        self._location = location

    def create(
        self,
        run: str,
        *,
        flow: str,
        preset: str | None,
        config: Mapping[str, Any],
        parameters: Mapping[str, Any] | None = None,
        code: Mapping[str, str] | None = None,
    ) -> RunRecord:
        """Create a run, or resume it: the same name with the same configuration and code is the same run.

        Args:
            run: Its name.
            flow: Name of the flow.
            preset: Name of the preset, for display; it may differ when a run is resumed.
            config: The resolved configuration, as JSON.
            parameters: Other arguments of the flow, as JSON. None: none.
            code: Identities of the code it is made with, from `tasks.loop.run_code.code_of`. None: not recorded.

        Raises:
            StoreError: If the name is taken by a run of another flow, configuration, code or other parameters; the
                message says what differs.
        """
        record = RunRecord(
            name=checked_name(run, "run name"),
            flow=flow,
            preset=preset,
            created=datetime.now(UTC),
            config=as_json(config),
            parameters=as_json(parameters or {}),
            code=dict(code or {}),
        )
        earlier = self.check_name(record)
        if earlier is None and not self._location.create(f"runs/{run}/run.json", as_bytes(record)):
            earlier = self.check_name(record)  # another process was faster
        return earlier or record

    def check_name(self, record: RunRecord) -> RunRecord | None:
        """Return the existing run of this name; None if the name is free.

        Raises:
            StoreError: If it is a run of another flow, configuration, code or other parameters; the message says what
                differs. If the name of another run differs by case alone.
        """
        run, earlier = record.name, self.find(record.name)
        is_new = earlier is None or earlier.name != run  # a disk that ignores case finds the other run
        if is_new and (other := differing_by_case(run, self.names())):
            raise StoreError(
                f"a run named '{run}' cannot be in {self._location.name} beside '{other}': some disks, such as "
                "macOS's, keep names that differ by case alone in one folder. Give this run another name"
            )
        if earlier is None:
            return None
        if differences := other_settings(earlier, record):
            raise StoreError(
                f"a run named '{run}' exists in {self._location.name} with other settings:\n{differences}\n"
                "Give this run another name, and it reuses every stage that the change does not concern; or use the "
                f"settings of the earlier one to continue it.{how_to_change(earlier, record)}"
            )
        if differences := other_code(earlier, record):
            raise StoreError(
                f"a run named '{run}' exists in {self._location.name}, made with other code:\n{differences}\n"
                "Its record would mix the results of both. Give this run another name, and it reports what it can "
                "reuse of the earlier one; or use the code of the earlier one to continue it."
            )
        return earlier

    def hold(self, run: str) -> Lease:
        """Return the exclusive lease to work on a run, held while it is open: `with runs.hold(run): ...`.

        Raises:
            StoreError: On entering, if another process holds it.
        """
        _CHAINS.pop((self._location.name, run), None)  # others may have written since
        return Lease(self._location, checked_name(run, "run name"))

    def is_running(self, run: str) -> bool:
        """Whether a process is working on the run. One on another machine counts as alive for two minutes after its
        last heartbeat."""
        held = is_held(self._location, checked_name(run, "run name"), STALE_AFTER)
        if held is not None:
            return held
        state = self.state(run)
        return state is not None and state.status == "running" and datetime.now(UTC) - state.heartbeat < STALE_AFTER

    def process(self, run: str) -> str:
        """Describe the process that works, or last worked, on a run, for display."""
        holder = holder_of(self._location, checked_name(run, "run name"))
        if holder is None:
            return "not known"
        return f"{holder.process} on this machine" if holder.is_local else "on another machine"

    def last_heard(self, run: str) -> datetime | None:
        """Return the last heartbeat of the process that works, or last worked, on the run, in UTC by its own clock;
        None if there was none."""
        holder, state = holder_of(self._location, checked_name(run, "run name")), self.state(run)
        return max([*([holder.heard] if holder else []), *([state.heartbeat] if state else [])], default=None)

    def adopt(self, record: RunRecord, iterations: Mapping[int, IterationRecord], state: RunState | None) -> None:
        """Add the records of a run from another store, whose artifacts have already been copied.

        Stages that only this store has are kept; of two states the one with the later heartbeat is kept. The records
        are sealed again, except those without a seal. `run.json`, which makes it a run, is written last.

        Raises:
            StoreError: If another run has the name, or the same stage was recorded with another key; nothing is written
                then.
        """
        earlier, run = self.find(record.name), record.name
        here = self.records(run)
        before = digest(as_bytes(record) if earlier is None else self._location.read(f"runs/{run}/run.json"))
        for iteration, stages in self.merged(record, iterations).items():
            known = [records[iteration] for records in (here, iterations) if iteration in records]
            is_sealed = all(record.previous for record in known)
            data = as_bytes(IterationRecord(previous=before if is_sealed else "", stages=stages))
            self._location.replace(f"runs/{run}/{record_path(iteration)}", data)
            before = digest(data)
        current = self.state(run)
        if state is not None and (current is None or current.heartbeat <= state.heartbeat):
            current = state
        if current is not None:
            self._write(f"runs/{run}/state.json", current.model_copy(update={"head": current.head and before}))
        if earlier is None:
            self._write(f"runs/{run}/run.json", record)
        _CHAINS.pop((self._location.name, run), None)

    def merged(self, record: RunRecord, iterations: Mapping[int, IterationRecord]) -> dict[int, StageKeys]:
        """Return the records that `adopt` would produce, without writing. Raises the same errors."""
        self.check_name(record)
        run, merged = record.name, self.iterations(record.name)
        for iteration, theirs in iterations.items():
            here = merged.get(iteration, {})
            for stage, keys in theirs.stages.items():
                if here.get(stage, keys) != keys:
                    raise StoreError(
                        f"run {run} is already in {self._location.name}, where stage {stage} of iteration "
                        f"{iteration} made {here[stage]}, but {keys} here: the same settings were run by "
                        "different releases. Both are untouched; copy into another store"
                    )
            merged[iteration] = {**here, **theirs.stages}
        return dict(sorted(merged.items()))

    def forget(self, run: str) -> None:
        """Delete a run's records. Its artifacts stay; `keeping.garbage` deletes those that no other run needs.

        Raises:
            StoreError: If there is no such run, or a process is working on it.
        """
        self.get(run)
        with self.hold(run):
            files = [file.path for file in self._location.files(f"runs/{run}")]
            # run.json, which makes it a run, is deleted last, so that an interrupted deletion can be repeated.
            self._location.delete(path for path in files if path.count("/") > 2 and "/leases/" not in path)
            self._location.delete(path for path in files if path.count("/") == 2 and not path.endswith("/run.json"))
            self._location.delete([f"runs/{run}/run.json"])
        self._location.remove_empty(f"runs/{run}")

    def find(self, run: str) -> RunRecord | None:
        """Return a run by its name; None if there is none."""
        return self._read(RunRecord, f"runs/{checked_name(run, 'run name')}/run.json")

    def get(self, run: str) -> RunRecord:
        """Return a run by its name.

        Raises:
            StoreError: If there is none; the message lists similar names.
        """
        record = self.find(run)
        if record is None:
            names = self.names()
            near = difflib.get_close_matches(run, names, n=3)
            near = near or [name for name in names if difflib.get_close_matches(run, [name[: len(run) + 1]])][:3]
            hint = f"it has {len(names)}: `starpo runs`" if names else "there are no runs in it yet: start one first."
            hint = f"did you mean {', '.join(near)}?" if near else hint
            raise StoreError(f"there is no run '{run}' in {self._location.name}; {hint}")
        return record

    def names(self) -> tuple[str, ...]:
        """Return the names of all runs, sorted; no file is read.

        A folder without `run.json` counts as well: a copy in progress writes that last.
        """
        return tuple(name for name in self._location.names("runs") if is_name(name))

    def list(self) -> list[RunRecord]:
        """Return all runs whose `run.json` can be read, newest first; the log names the others."""
        records = []
        for name in self.names():
            try:
                records += [record] if (record := self.find(name)) else []
            except StoreError as error:
                _log.warning("run %s is left out: %s", name, first_line(error))
        return sorted(records, key=lambda record: (record.created, record.name), reverse=True)

    def fault(self, run: str) -> str:
        """Return why a record of a run cannot be read, in one line; empty if all can, or if there is no such run."""
        try:
            self.find(run)
            self.iterations(run)
            self.state(run)
        except StoreError as error:
            return first_line(error)
        return ""

    def record_stage(self, run: str, iteration: int, stage: str, keys: Mapping[str, str]) -> None:
        """Record the artifacts of a stage in an iteration: kind -> key. Recording the same again is a no-op."""
        place = self._location.name, checked_name(run, "run name")
        with _WRITING:
            try:
                if place not in _CHAINS:
                    _CHAINS[place] = RecordChain(self._location, run)
                _CHAINS[place].note(iteration, stage, keys)
            except ValidationError as error:
                raise self._unreadable(f"runs/{run}/iterations", error.errors()[0]["msg"]) from error

    def records(self, run: str) -> dict[int, IterationRecord]:
        """Return iteration -> its record, in ascending order; empty if nothing was recorded."""
        return {iteration: record for iteration, (_, record) in self._stored_records(run).items()}

    def iterations(self, run: str) -> dict[int, StageKeys]:
        """Return iteration -> stage -> {kind: key}, in ascending order; empty if nothing was recorded."""
        return {iteration: record.stages for iteration, record in self.records(run).items()}

    def iteration(self, run: str, iteration: int) -> StageKeys:
        """Return stage -> {kind: key} of one iteration; empty if nothing was recorded."""
        record = self._read(IterationRecord, f"runs/{checked_name(run, 'run name')}/{record_path(iteration)}")
        return record.stages if record else {}

    def seals(self, run: str) -> Seals:
        """Check whether the records are what was written. See `ragen.store.records.seals`.

        Raises:
            StoreError: If there is no such run.
            ArtifactDamagedError: If a record cannot be read.
        """
        self.get(run)
        state = self.state(run)
        is_over = state is not None and state.status == "completed"
        records = self._stored_records(run)
        return check_seals(
            self._location.read(f"runs/{run}/run.json"), records, state.head if state and is_over else None
        )

    def check_sealed(self, run: str) -> None:
        """Check that no record of a run was changed since it was written, as far as its seals show.

        Raises:
            ArtifactDamagedError: If one was; the message names it.
        """
        for path, what in self.seals(run).broken.items():
            raise ArtifactDamagedError(
                f"{self._location.name.rstrip('/')}/runs/{run}/{path} fails its integrity check: {what}. "
                f"{RECORD_ADVICE}"
            )

    def set_state(
        self,
        run: str,
        status: RunStatus,
        message: str = "",
        metrics: Mapping[str, float] | None = None,
        warning: str | None = None,
    ) -> RunState:
        """Write the state of a run, with the current time as its heartbeat.

        Args:
            run: Its name.
            status: running, completed or failed.
            message: One line for display.
            metrics: Numbers for display; None: keep the previous ones.
            warning: Why it learns nothing; None: keep the previous one.
        """
        path = f"runs/{checked_name(run, 'run name')}/state.json"
        with _WRITING:
            earlier = self._read(RunState, path) if metrics is None or warning is None else None
            state = RunState(
                status=status,
                heartbeat=datetime.now(UTC),
                message=without_secrets(message),
                metrics=dict(metrics if metrics is not None else earlier.metrics if earlier else {}),
                warning=warning if warning is not None else earlier.warning if earlier else "",
                head=self._head(run) if status == "completed" else "",
            )
            self._write(path, state)
        return state

    def touched(self, run: str) -> datetime | None:
        """Return when the state or a record was last replaced; nothing is read. None: object storage does not tell."""
        folder = f"runs/{checked_name(run, 'run name')}"
        return max(filter(None, map(self._location.modified, (folder, f"{folder}/iterations"))), default=None)

    def stamps(self, run: str) -> dict[int, str]:
        """Return iteration -> what changes once a stage of it is recorded, in ascending order; no file is read."""
        files = self._location.files(f"runs/{checked_name(run, 'run name')}/iterations")
        stamps = {file.path.rpartition("/")[2]: f"{file.size_bytes} {file.modified.timestamp()}" for file in files}
        return {at: stamps[record_path(at).removeprefix("iterations/")] for at in sorted(numbers_of(stamps, DIGITS))}

    def state(self, run: str) -> RunState | None:
        """Return the state of a run; None if it was never written."""
        return self._read(RunState, f"runs/{checked_name(run, 'run name')}/state.json")

    def _stored_records(self, run: str) -> dict[int, tuple[bytes, IterationRecord]]:
        folder = f"runs/{checked_name(run, 'run name')}"
        records = {}
        for iteration in sorted(recorded_iterations(self._location, run)):
            path = f"{folder}/{record_path(iteration)}"
            try:
                data = self._location.read(path)
            except FileNotFoundError as error:  # a link to nothing, or deleted since it was listed
                raise self._unreadable(path, "it is listed, and is not there") from error
            records[iteration] = data, self._parsed(IterationRecord, path, data)
        return records

    def _head(self, run: str) -> str:
        chain = _CHAINS.get((self._location.name, run)) or RecordChain(self._location, run)
        return chain.head()

    def _read(self, model: type[M], path: str) -> M | None:
        try:
            return self._parsed(model, path, self._location.read(path))
        except FileNotFoundError:
            return None

    def _parsed(self, model: type[M], path: str, data: bytes) -> M:
        try:
            return model.model_validate_json(data)
        except ValidationError as error:
            raise self._unreadable(path, error.errors()[0]["msg"]) from error

    def _write(self, path: str, record: BaseModel) -> None:
        self._location.replace(path, as_bytes(record))

    def _unreadable(self, path: str, fault: str) -> ArtifactDamagedError:
        return ArtifactDamagedError(
            f"{self._location.name.rstrip('/')}/{path} cannot be read ({fault}). Artifacts are untouched: restore the "
            "file from a copy, or delete it and start the run again, which reuses every artifact."
        )
