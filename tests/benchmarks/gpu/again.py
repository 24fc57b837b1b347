"""What should repeat, once more in a process of its own."""

from tests.benchmarks.gpu import learning, rollout
from tests.benchmarks.gpu.report import Report
from tests.benchmarks.gpu.setup import Setup


def measure(report: Report, setup: Setup) -> None:
    """Play, update and fine-tune once each."""
    rollout.measure(report, setup, repeats=1)
    learning.measure(report, setup, repeats=1)
