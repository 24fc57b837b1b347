"""Wait until NODES nodes of the Ray cluster at RAY_ADDRESS are alive: `python wait_for_ray.py NODES [SECONDS]`."""

import os
import subprocess
import sys
import time

_COUNT = """
import ray
ray.init(logging_level="ERROR")
print(sum(node["Alive"] for node in ray.nodes()))
"""


def num_alive() -> int:
    """Count the live nodes; 0 while the head does not answer. Uses a subprocess, as Ray itself would never give up."""
    try:
        done = subprocess.run([sys.executable, "-c", _COUNT], capture_output=True, text=True, timeout=60)
        return int(done.stdout.split()[-1])
    except (subprocess.TimeoutExpired, ValueError, IndexError):
        return 0


def wait(num_nodes: int, patience_s: float) -> None:
    """Wait until this many nodes are alive.

    Raises:
        SystemExit: If they are not within `patience_s` seconds.
    """
    deadline = time.monotonic() + patience_s
    while (found := num_alive()) < num_nodes:
        if time.monotonic() > deadline:
            sys.exit(
                f"error: {found} of {num_nodes} nodes joined the Ray cluster at {os.environ.get('RAY_ADDRESS')} in "
                f"{patience_s:g} s. Check that they reach that address and each other (STARPO_HEAD_IP sets another)"
            )
        time.sleep(2)


if __name__ == "__main__":
    wait(int(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 300)
