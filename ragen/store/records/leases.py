"""Leases: which process works on a run. One process holds a run's lease, and loses it when it is killed.

    <store>/runs/<run>/leases/000007.json    machine, process, time of the last heartbeat

A lease is taken by creating the file of the next number, at which only one of several processes succeeds, on a disk and
on object storage alike. Its holder rewrites it every few seconds and removes it at the end. The next process that wants
the run looks at the newest file. A holder on the same machine is looked up by its process id, so a killed run can be
restarted at once; one on another machine is watched, and counts as dead if its file does not change. Clocks are not
compared. A holder that was wrongly taken for dead, because its machine slept, finds a newer file and stops.
"""

import hashlib
import logging
import os
import platform
import threading
import time
import uuid
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from types import TracebackType

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from starpo.ragen.core.errors import StoreError
from starpo.ragen.core.process_start import is_alive, process_start
from starpo.ragen.store.names import numbers_of
from starpo.ragen.store.remote.location import Location

HEARTBEAT_S = 10.0
"""Interval between heartbeats of a holder."""
EXPIRY_S = 45.0
"""A holder on another machine without a heartbeat for this long, while it is watched, is dead."""
POLL_S = 1.0
"""Interval at which it is watched."""

_DIGITS = 6
_HELD: set[tuple[str, str]] = set()
"""(store, path) of the leases that this process holds. A lease file of this process that is missing here is a leftover
that could not be removed."""

_log = logging.getLogger(__name__)


class Holder(BaseModel):
    """A process that holds a lease."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    machine: str
    """Digest that distinguishes machines, and containers on them; contains no name."""
    process: int
    """Its process id on that machine."""
    started: str
    """Distinguishes the process from others with the same id; see `ragen.core.process_start`."""
    heard: AwareDatetime
    """Time of this write, in UTC, by its own clock."""

    @property
    def is_local(self) -> bool:
        """Whether it is on this machine."""
        return self.machine == _machine()

    @property
    def is_alive(self) -> bool:
        """Whether the process exists on this machine."""
        return is_alive(self.process, self.started)


class Lease:
    """Exclusive right to work on a run; a context manager. See `Runs.hold`.

    Attributes:
        is_lost: Whether another process has taken the run over, because this one sent no heartbeat for too long.

    Raises:
        StoreError: On entering, if another process holds it, or the store cannot be written.
    """

    def __init__(self, location: Location, run: str) -> None:
        self._location = location
        self._run = run
        self._number = 0
        self.is_lost = False
        self._stop = threading.Event()
        self._beats: threading.Thread | None = None

    def __enter__(self) -> "Lease":
        self._number = self._take()
        _HELD.add((self._location.name, _path(self._run, self._number)))
        self._delete_older()
        self._beats = threading.Thread(target=self._beat, name=f"lease of {self._run}", daemon=True)
        self._beats.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._beats is not None
        _HELD.discard((self._location.name, _path(self._run, self._number)))
        self._stop.set()
        self._beats.join()
        if self.is_lost:
            return
        try:
            self._location.delete([_path(self._run, self._number)])
        except StoreError as fault:  # the work is done; the next process finds this one dead
            _log.warning("the lease of run %s could not be given back: %s", self._run, fault)

    def check(self) -> None:
        """Check that the lease is still held.

        Raises:
            StoreError: If it is lost.
        """
        if self.is_lost:
            raise StoreError(
                f"run '{self._run}' in {self._location.name} was taken over by another process, because this one did "
                "not renew its lease; everything it stored is reused there. Leave the run to the other process"
            )

    def _delete_older(self) -> None:
        """Delete the leases of dead holders. If that fails, they stay, and the newest one counts all the same."""
        try:
            self._location.delete(_path(self._run, n) for n in _numbers(self._location, self._run) if n < self._number)
        except StoreError as fault:
            _log.warning("older leases of run %s could not be deleted: %s", self._run, fault)

    def _take(self) -> int:
        previous, since = b"", time.monotonic()
        while True:
            newest = max(_numbers(self._location, self._run), default=0)
            data = self._read(newest)
            holder = _parse(data)
            if data != previous:
                if holder is not None and (holder.is_local or _parse(previous) is not None):
                    self._refuse_if_alive(holder, newest)
                previous, since = data, time.monotonic()
                if holder is not None and not holder.is_local:
                    _log.warning(
                        "run %s was worked on by a process on another machine: waiting %.0f s to see if it still is",
                        self._run,
                        EXPIRY_S,
                    )
            is_dead = newest == 0 or (holder is not None and holder.is_local)
            if is_dead or time.monotonic() - since > EXPIRY_S:
                if self._location.create(_path(self._run, newest + 1), _json(_myself())):
                    return newest + 1
                previous = b""
            time.sleep(POLL_S)

    def _read(self, number: int) -> bytes:
        try:
            return self._location.read(_path(self._run, number)) if number else b""
        except FileNotFoundError:  # just released
            return b""

    def _refuse_if_alive(self, holder: Holder, number: int) -> None:
        if holder.is_local and not holder.is_alive:
            return
        is_mine = holder.is_local and holder.process == os.getpid()
        if is_mine and (self._location.name, _path(self._run, number)) not in _HELD:
            return
        who = f"process {holder.process} on this machine" if holder.is_local else "a process on another machine"
        raise StoreError(
            f"{who} is working on run '{self._run}' in {self._location.name}, and two at once would do everything "
            f"twice. Wait until it ends (`starpo follow {self._run}`), stop it, or give this run another name"
        )

    def _beat(self) -> None:
        while not self._stop.wait(HEARTBEAT_S):
            try:
                is_newest = max(_numbers(self._location, self._run), default=0) == self._number
                holder = _parse(self._read(self._number)) if is_newest else None
                # Numbers restart once all leases were released: the newest may have our number but another holder.
                if holder is None or (holder.machine, holder.process) != (_machine(), os.getpid()):
                    self.is_lost = True
                    return
                self._location.replace(_path(self._run, self._number), _json(_myself()))
            except StoreError as error:
                _log.warning("the lease of run %s could not be renewed: %s", self._run, error)


def is_held(location: Location, run: str, believed_for: timedelta) -> bool | None:
    """Whether a process is working on a run; None if there is no lease that tells.

    Args:
        location: The store.
        run: The run's name.
        believed_for: How long a holder on another machine counts as alive after its last heartbeat.
    """
    holder = holder_of(location, run)
    if holder is None:
        return None
    return holder.is_alive if holder.is_local else datetime.now(UTC) - holder.heard < believed_for


def holder_of(location: Location, run: str) -> Holder | None:
    """Return the holder of a run's newest lease, dead or alive; None if there is no lease or it cannot be read."""
    newest = max(_numbers(location, run), default=0)
    try:
        return _parse(location.read(_path(run, newest))) if newest else None
    except FileNotFoundError:
        return None


def _numbers(location: Location, run: str) -> list[int]:
    return numbers_of(location.names(f"runs/{run}/leases"), _DIGITS)


def _path(run: str, number: int) -> str:
    return f"runs/{run}/leases/{number:0{_DIGITS}d}.json"


def _parse(data: bytes) -> Holder | None:
    """Parse a lease file; None if it is being written, or its writer was killed while writing."""
    try:
        return Holder.model_validate_json(data)
    except ValidationError:
        return None


def _json(holder: Holder) -> bytes:
    return holder.model_dump_json(indent=2).encode() + b"\n"


def _myself() -> Holder:
    pid = os.getpid()
    started = process_start(pid)
    assert started is not None
    return Holder(machine=_machine(), process=pid, started=started, heard=datetime.now(UTC))


@cache
def _machine() -> str:
    """Return a digest of the machine and, in a container, of its process-id namespace."""
    facts = [platform.node()]
    try:
        facts += [Path("/proc/sys/kernel/random/boot_id").read_text(), os.readlink("/proc/self/ns/pid")]  # noqa: PTH115
    except OSError:  # not Linux
        facts.append(f"{uuid.getnode()}")
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]
