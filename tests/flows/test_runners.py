"""Concurrent cells have their own processes, which end with the sweep's process, however it ends."""

import subprocess
import sys

import psutil
import pytest

KILLED_BETWEEN_CELLS = """
import os, signal
from starpo.flows.runners import cell_runner

if __name__ == "__main__":
    with cell_runner(2) as runner:
        print(runner._executor.submit(os.getpid).result(), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
"""

KILLED_BESIDE_A_RUN = """
import multiprocessing, os, signal, time
from starpo.flows.runners import stop_with_parent

def work(pipe):
    stop_with_parent("flow", "flow run", "state")
    signal.signal(signal.SIGTERM, lambda *_: (print("stopped", flush=True), os._exit(0)))
    pipe.send(os.getpid())
    time.sleep(60)

if __name__ == "__main__":
    ours, theirs = multiprocessing.Pipe()
    multiprocessing.get_context("spawn").Process(target=work, args=(theirs,)).start()
    print(ours.recv(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.ci
def test_killed_ablation_stops_its_run(tmp_path):
    script = tmp_path / "killed.py"
    script.write_text(KILLED_BESIDE_A_RUN)
    ablation = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert ablation.stdout is not None
    run = psutil.Process(int(ablation.stdout.readline()))
    try:
        ablation.wait()
        assert ablation.stdout.readline() == "stopped\n"
        run.wait(timeout=10)
    finally:
        if run.is_running():
            run.kill()


@pytest.mark.ci
def test_killed_sweep_ends_cell_processes(tmp_path):
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
