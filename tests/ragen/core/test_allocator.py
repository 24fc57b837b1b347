"""Tests of glibc's malloc settings: arenas are bounded, and what a process has freed can be given back."""

import os
import platform
import subprocess
import sys

import pytest

from starpo.ragen.core.allocator import keeping_freed_memory

_FREES_512_MB = """
from pathlib import Path
import numpy as np
from starpo.ragen.core.allocator import give_back_freed_memory

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

blocks = [np.ones(2**17) for _ in range(512)]  # of 1 MiB
last = np.ones(2**17)
del blocks
kept = resident()
give_back_freed_memory()
print(kept - resident())
"""

_ALLOCATES_IN_16_THREADS = """
import ctypes
import sys
import tempfile
from threading import Barrier, Thread
from starpo.ragen.core.allocator import bound_arenas

bound_arenas()
libc = ctypes.CDLL(None)
libc.malloc.restype = libc.fopen.restype = ctypes.c_void_p
together = Barrier(16)

def allocate():
    together.wait()
    libc.malloc(1000)
    together.wait()

threads = [Thread(target=allocate) for _ in range(16)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
with tempfile.NamedTemporaryFile() as file:
    stream = ctypes.c_void_p(libc.fopen(file.name.encode(), b"w"))
    libc.malloc_info(0, stream)
    libc.fclose(stream)
    print(file.read().count(b"<heap nr="))
"""

glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="settings of glibc's malloc")


@glibc
@pytest.mark.parametrize(("tunables", "arenas"), [(None, (os.cpu_count() or 1) + 1), ("glibc.malloc.arena_max=1", 1)])
def test_arenas_bounded_unless_user_set(tunables, arenas):
    environment = {name: value for name, value in os.environ.items() if name != "GLIBC_TUNABLES"}
    if tunables:
        environment["GLIBC_TUNABLES"] = tunables
    out = subprocess.run(
        [sys.executable, "-c", _ALLOCATES_IN_16_THREADS], env=environment, capture_output=True, check=True, text=True
    )
    assert int(out.stdout) == min(arenas, 16)


@pytest.mark.ci
@glibc
def test_freed_memory_kept_until_released():
    out = subprocess.run(
        [sys.executable, "-c", _FREES_512_MB], env=keeping_freed_memory(), capture_output=True, check=True, text=True
    )
    assert int(out.stdout) > 400 * 2**20
