"""glibc's malloc in compute processes: memory that a stage frees is kept for its next step, and given back at its end.

    GLIBC_TUNABLES=$(python -m starpo.ragen.core.allocator) python ...     must be set before the process starts
    bound_arenas()                              the bound on arenas alone, in a process that was started without

A turn's KV cache and a micro-batch's activations and gradients are freed and reallocated at every step. If the memory
is returned to the operating system in between, every page faults again: 7% of the time of a rollout shard, 11% of that
of an update.
"""

import os
import sys
from collections.abc import Mapping
from ctypes import CDLL

_TUNABLES = {
    "hugetlb": 1,
    "top_pad": 64 * 2**20,
    "mmap_threshold": 32 * 2**20,
    "trim_threshold": 2**30,
    "arena_max": (os.cpu_count() or 1) + 1,  # otherwise every thread that an update starts keeps its freed memory
}
_M_ARENA_MAX = -8  # malloc.h
KEEP_FREED_MEMORY = ":".join(f"glibc.malloc.{name}={value}" for name, value in _TUNABLES.items())
"""Value of GLIBC_TUNABLES; sizes in bytes. Other malloc implementations ignore it."""


def keeping_freed_memory(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment for a subprocess that keeps freed memory; a GLIBC_TUNABLES that the user set wins."""
    return {"GLIBC_TUNABLES": KEEP_FREED_MEMORY, **environment}


def bound_arenas() -> None:
    """Let the threads of this process share as many arenas as above, as what each of many has freed adds up.

    For processes that a terminal starts, before they start threads: later it has no effect. Settings of GLIBC_TUNABLES
    win. A no-op with other malloc implementations.
    """
    libc = CDLL(None)
    if "GLIBC_TUNABLES" not in os.environ and hasattr(libc, "gnu_get_libc_version"):
        libc.mallopt(_M_ARENA_MAX, _TUNABLES["arena_max"])


def give_back_freed_memory() -> None:
    """Return freed memory to the operating system, for other processes; a no-op with other malloc implementations."""
    if trim := getattr(CDLL(None), "malloc_trim", None):
        trim(0)


if __name__ == "__main__":
    sys.stdout.write(KEEP_FREED_MEMORY + "\n")
