"""Whether processes that a test knows by their ids have ended."""

import psutil


def has_ended(pid: int) -> bool:
    """Whether a process is no more, or is a zombie that nobody has waited for."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
