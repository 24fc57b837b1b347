"""Concurrent cells have their own processes, which end with the sweep's process, however it ends."""

import subprocess
import sys

import psutil

KILLED_BETWEEN_CELLS = """
import os, signal
from starpo.flows.runners import cell_runner

if __name__ == "__main__":
    with cell_runner(2) as runner:
        print(runner._executor.submit(os.getpid).result(), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_processes_of_cells_end_with_a_sweep_that_is_killed(tmp_path):
    """Prefect kills a cancelled flow run whose cells take longer than half a minute."""
    script = tmp_path / "killed.py"
    script.write_text(KILLED_BETWEEN_CELLS)
    sweep = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert sweep.stdout is not None
    worker = psutil.Process(int(sweep.stdout.readline()))
    try:
        sweep.wait()
        worker.wait(timeout=10)
    finally:
        if worker.is_running():
            worker.kill()
