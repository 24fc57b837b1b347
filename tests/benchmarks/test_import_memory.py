"""Traces are streamed: 100,000 of them are imported in bounded memory, in a separate process.

pytest -m benchmark tests/benchmarks/test_import_memory.py -s
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.benchmark

NUM_TRACES = 100_000
GROUP_SIZE = 8
LIMIT_GB = 1.5

_IMPORT = """
import resource, sys
from starpo.flows.cli import app
try:
    app(sys.argv[1:])
finally:
    print("peak", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def write_traces(file: Path, number: int) -> None:
    """Write traces of two turns, each with 40 prompt tokens and 40 sampled tokens, as prime-rl does."""
    ids = list(range(5, 45))
    sampled = {"sampled": True, "token_ids": ids, "mask": [True] * 40, "logprobs": [-0.125] * 40}
    with file.open("w") as stream:
        for trace in range(number):
            question = {"message": {"role": "user", "content": "what now? " * 8}, "token_ids": ids}
            told = [{"parent": parent, **question} for parent in (None, 1)]
            said = [
                {"parent": parent, "message": {"role": "assistant", "content": f"I go up, {trace}. " * 8}, **sampled}
                for parent in (0, 2)
            ]
            nodes = [told[0], said[0], told[1], said[1]]
            episode = {
                "id": f"episode-{trace}",
                "env": "maze",
                "group": {"id": f"group-{trace // GROUP_SIZE}"},
                "traces": [{"id": f"trace-{trace}", "nodes": nodes, "rewards": {"solved": {"score": trace % 3}}}],
            }
            stream.write(json.dumps(episode) + "\n")


def test_a_hundred_thousand_traces(tmp_path: Path) -> None:
    file = tmp_path / "traces.jsonl"
    write_traces(file, NUM_TRACES)
    arguments = ["import", "mine", str(file), "--format", "verifiers", "--store", str(tmp_path / "store"), "--json"]
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", _IMPORT, *arguments], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    seconds = time.monotonic() - started
    said, _, peak = done.stdout.rpartition("peak ")
    assert json.loads(said)["traces"] == NUM_TRACES
    size = file.stat().st_size
    print(f"{NUM_TRACES} traces, {size / 1e6:.0f} MB: {seconds:.0f} s, {int(peak) / 1e9:.2f} GB at most")
    assert int(peak) < LIMIT_GB * 1e9
