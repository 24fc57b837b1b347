"""When a process began, such that setting the clock does not change it: process ids are used again.

Linux counts clock ticks since the machine was started; the time of day of a start is worked out from the clock as it is
now, and moves when that is set. Other systems keep the time of day as it was.
"""

from pathlib import Path

import psutil

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_STARTED = 22 - 3
"""Place of `starttime` in /proc/PID/stat (field 22 of proc(5)) behind the name, whose brackets end field 2."""


def process_start(pid: int) -> str | None:
    """What tells a process from all others that have or had its id on this machine; None: there is no such process.

    Args:
        pid: Its process id.
    """
    try:
        if _BOOT_ID.exists():
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            return f"{_BOOT_ID.read_text().strip()}:{fields[_STARTED]}"
        return repr(psutil.Process(pid).create_time())
    except (FileNotFoundError, ProcessLookupError, psutil.NoSuchProcess):
        return None


def is_alive(pid: int, started: str) -> bool:
    """Does the process of this id and this start still run? One that has ended, and is not waited for, does not."""
    try:
        return process_start(pid) == started and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
