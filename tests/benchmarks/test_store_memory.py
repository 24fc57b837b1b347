"""Streaming: a million turns are validated and written in bounded memory, in a separate process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.benchmark

NUM_TURNS = 1_000_000
LIMIT_BYTES = 1.5e9

PROGRAM = """
import json, resource, sys, time
from starpo.ragen.store import Facts, Store
from tests.examples import GROUP_SIZE, TURNS_EACH, example_turns
from starpo.schemas.manifest import Stage

url, num_turns = sys.argv[1], int(sys.argv[2])
groups_each = 500

def batches():
    for first in range(0, num_turns // (GROUP_SIZE * TURNS_EACH), groups_each):
        yield from example_turns(groups_each, first).to_batches()

started, store = time.perf_counter(), Store(url)
stage = Stage(name="rollout", version=1)
rows = store.put_table("turns", batches(), Facts(key="k", stage=stage, settings={}, inputs={}, seed=None)).num_rows
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({"rows": rows, "peak_bytes": peak, "seconds": time.perf_counter() - started}))
"""


@pytest.mark.timeout(600)
def test_a_million_turns_stay_below_one_and_a_half_gigabytes(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "store"), str(NUM_TURNS)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    print(f"\n{result['rows']} turns, {result['peak_bytes'] / 1e6:.0f} MB, {result['seconds']:.0f} s")
    assert result["rows"] == NUM_TURNS
    assert result["peak_bytes"] < LIMIT_BYTES
