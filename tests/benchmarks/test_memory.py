"""Memory of the whole default run: server, serving process, flow run and command line together.

pytest -m benchmark tests/benchmarks/test_memory.py -s
"""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(1200)]
RAGEN = [sys.executable, "-m", "starpo.flows.cli"]


def test_memory_of_the_default_run(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = {
        **os.environ,
        "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
        "PREFECT_HOME": str(tmp_path / "prefect"),
        "STARPO_STORE": str(tmp_path / "store"),
        "STARPO_STATE_DIR": str(tmp_path / "state"),
        "STARPO_WANDB_MODE": "offline",
        "STARPO_MARK": str(tmp_path),
    }
    peaks: dict[str, float] = {}
    peak = 0.0
    command = subprocess.Popen([*RAGEN, "train", "sokoban", "--iterations", "4"], cwd=tmp_path, env=env)
    try:
        while command.poll() is None:
            sizes = dict(_sizes(str(tmp_path)))
            peak = max(peak, sum(sizes.values()))
            peaks = {name: max(size, peaks.get(name, 0.0)) for name, size in {**peaks, **sizes}.items()}
            time.sleep(0.2)
    finally:
        subprocess.run([*RAGEN, "down"], cwd=tmp_path, env=env, check=True)
    assert command.returncode == 0
    print(f"peak of all processes together {peak / 2**30:.2f} GB (proportional set size)")
    for name, size in sorted(peaks.items(), key=lambda item: -item[1]):
        print(f"  {size / 2**30:.2f} GB  {name}")
    assert peak < 3 * 2**30


def _sizes(mark: str) -> list[tuple[str, float]]:
    """Return the memory of this test's marked processes by command; pages that they share are counted once."""
    sizes: dict[str, float] = {}
    for process in psutil.process_iter():
        try:
            if process.environ().get("STARPO_MARK") == mark:
                line = process.cmdline()
                name = " ".join(line[1:4])[:60]
                sizes[name] = sizes.get(name, 0.0) + process.memory_full_info().pss
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return list(sizes.items())
