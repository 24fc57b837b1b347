"""The tests that need a GPU."""

import subprocess
import sys
from pathlib import Path

from tests.benchmarks.gpu.report import Report
from tests.benchmarks.gpu.setup import Setup

ROOT = Path(__file__).parents[3]


def measure(report: Report, setup: Setup) -> None:
    """Run the tests marked `gpu`, benchmarks aside; only their files are imported."""
    tests = (ROOT / "tests").rglob("test_*.py")
    files = sorted(str(path) for path in tests if "@pytest.mark.gpu" in path.read_text())
    command = [sys.executable, "-m", "pytest", "-m", "gpu and not benchmark", "-p", "no:cacheprovider", *files]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout)
    if done.returncode:
        sys.exit(f"pytest: exit code {done.returncode}")
    report.add("pytest -m gpu", done.stdout.strip().splitlines()[-1].strip("= "))
