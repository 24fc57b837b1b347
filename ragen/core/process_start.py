"""Start time of a process, unaffected by changes of the system clock; it tells apart processes that reuse an id.

Linux counts clock ticks since boot; a wall-clock start time would be computed from the present clock and would shift
whenever the clock is set. Other systems record the wall-clock time of the start.
"""

from pathlib import Path

import psutil

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_STARTED = 22 - 3
"""Index of `starttime` (field 22 of proc(5)) among the fields of /proc/PID/stat that follow the name, field 2."""


def process_start(pid: int) -> str | None:
    """Return a token that distinguishes a process from all others that have or had its id on this machine.

    Args:
        pid: Its process id.

    Returns:
        None if there is no such process.
    """
    try:
        if _BOOT_ID.exists():
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            return f"{_BOOT_ID.read_text().strip()}:{fields[_STARTED]}"
        return repr(psutil.Process(pid).create_time())
    except (FileNotFoundError, ProcessLookupError, psutil.NoSuchProcess):
        return None


def is_alive(pid: int, started: str) -> bool:
    """Whether the process with this id and start time is still running; a zombie is not."""
    try:
        return process_start(pid) == started and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
