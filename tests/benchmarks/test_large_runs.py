"""Commands that look at a long run: processor time that grows as the run does, and memory that hardly grows.

    pytest -m benchmark tests/benchmarks/test_large_runs.py -s

Runs are stored as training stores them, without training.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from starpo.ragen.store import Store

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(1800)]
SIZES = (100, 400)
COMMANDS = (["show"], ["diagnose", "--every", "0"], ["audit"], ["report", "-o", "page.html"])
START = ["-c", "from starpo.flows.cli import main; main()"]
MAX_GROWTH_MB = 150
"""Of 300 more iterations: their manifests, and the curves and decisions of the page."""


class Cost(NamedTuple):
    """Processor time and peak memory of a process."""

    seconds: float
    megabytes: float


def cost(arguments: list[str], folder: Path) -> Cost:
    process = subprocess.Popen([sys.executable, *START, *arguments], cwd=folder, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode in (0, 1), arguments  # 1: the audits of made-up data find faults
    return Cost(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def test_long_runs(store: Store, make_run: Callable[..., object], tmp_path: Path) -> None:
    for size in SIZES:
        make_run(store, f"run-{size}", iterations=size)
    costs = {}
    for command, *options in COMMANDS:
        for size in SIZES:
            costs[command, size] = cost([command, f"run-{size}", *options, "--store", store.url], tmp_path)
            print(f"{command} of {size} iterations: {costs[command, size]}")
    for command, *_ in COMMANDS:
        small, large = (costs[command, size] for size in SIZES)
        assert large.seconds < 1.2 * SIZES[1] / SIZES[0] * small.seconds
        assert large.megabytes < small.megabytes + MAX_GROWTH_MB
