"""Benchmarks print what they measured, with threads and load; the machine is shared, so ratios come from one run."""

from collections.abc import Iterator

import psutil
import pytest


@pytest.fixture(scope="session")
def prefect_server() -> Iterator[None]:
    from prefect.testing.utilities import prefect_test_harness

    with prefect_test_harness(server_startup_timeout=120):
        yield


@pytest.fixture(autouse=True)
def say_the_load() -> None:
    print(f"\nload {psutil.getloadavg()[0]:.1f} on {psutil.cpu_count()} cores")
