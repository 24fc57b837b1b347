"""Tests of glibc's malloc settings: what a process has freed can be given back."""

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


@pytest.mark.ci
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="settings of glibc's malloc")
def test_freed_memory_kept_until_released():
    out = subprocess.run(
        [sys.executable, "-c", _FREES_512_MB], env=keeping_freed_memory(), capture_output=True, check=True, text=True
    )
    assert int(out.stdout) > 400 * 2**20
