"""How processes that compute keep the memory that they free: in large pages, for the next step.

    GLIBC_TUNABLES=$(python -m starpo.ragen.core.allocator) python ...     has to be said before a process starts

A turn's cache, a micro-batch's activations and their gradients are freed and asked for again at every step. Given back
to the system, they come back a page fault at a time: 7% of a shard of a rollout, 11% of an update.
"""

import os
import sys
from collections.abc import Mapping

_TUNABLES = {
    "hugetlb": 1,
    "top_pad": 64 * 2**20,
    "mmap_threshold": 256 * 2**20,
    "trim_threshold": 2**30,
    "arena_max": (os.cpu_count() or 1) + 1,  # else each of the threads that an update begins keeps what it has freed
}
KEEP_FREED_MEMORY = ":".join(f"glibc.malloc.{name}={value}" for name, value in _TUNABLES.items())
"""Settings of glibc's malloc; sizes in bytes. Another library's malloc does not read them."""


def keeping_freed_memory(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment of a process to start, in which freed memory is kept; a setting of the user's own stays."""
    return {"GLIBC_TUNABLES": KEEP_FREED_MEMORY, **environment}


if __name__ == "__main__":
    sys.stdout.write(KEEP_FREED_MEMORY + "\n")
