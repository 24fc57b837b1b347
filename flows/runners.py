"""Task runners for the cells of sweeps and ablations: on Ray if configured, else on this machine.

STARPO_POOL -> cell_runner -> runner.submit(task, parameters), one task per cell -> future

For cells only: a Ray task has about 150 ms of Prefect overhead, too much for a stage of a small run.
"""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from prefect.task_runners import ProcessPoolTaskRunner, TaskRunner, ThreadPoolTaskRunner

from starpo.ragen.config.ray_runtime import RayRuntime
from starpo.ragen.config.runtime import Runtime
from starpo.ragen.core.errors import MissingPackageError

_GRACE_S = 30.0
"""Seconds that a run whose parent has died has to record its end. Prefect gives a cancelled one as many."""


@contextmanager
def cell_runner(concurrency: int) -> Iterator[TaskRunner[Any]]:
    """Start a task runner for cells.

    Args:
        concurrency: Concurrent cells on this machine: one at a time in this process, more in separate processes. On
            Ray, the resources requested per cell (STARPO_RAY_CELL_CPUS, _GPUS, _RESOURCES) and those of the cluster
            decide.

    Raises:
        MissingPackageError: If Ray is configured, and it or prefect-ray is not installed.
        EngineError: If the Ray cluster cannot be joined.
        ConfigError: If the cluster lacks the resources of a single cell.
    """
    if Runtime.current().pool == "ray":
        with _on_ray(RayRuntime()) as runner:
            yield runner
        return
    if concurrency == 1:
        here: TaskRunner[Any] = ThreadPoolTaskRunner(max_workers=1)
    else:
        here = ProcessPoolTaskRunner(concurrency, initializer=_end_with_parent)
    with here as runner:
        yield runner


def stop_with_parent(flow: Any, flow_run: Any, state: Any) -> None:
    """Hook of a flow: when the parent of this process has died, stop it as `starpo cancel` does, by SIGTERM."""

    def stop() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_GRACE_S)
        os._exit(1)

    _when_parent_dies(stop)


def _end_with_parent() -> None:
    """End this process when its parent has died: otherwise a pool's workers would wait for cells forever."""
    _when_parent_dies(lambda: os._exit(1))


def _when_parent_dies(act: Callable[[], object]) -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        act()

    threading.Thread(target=wait, daemon=True).start()


@contextmanager
def _on_ray(settings: RayRuntime) -> Iterator[TaskRunner[Any]]:
    from starpo.ragen.agents.rollout.pools.ray_cluster import check_room, connect

    ray = connect(num_cpus=Runtime.current().threads)
    try:
        from prefect_ray import RayTaskRunner
        from prefect_ray.context import remote_options
    except ImportError as error:
        raise MissingPackageError(
            "cells run on Ray (STARPO_POOL = ray) by prefect-ray, which is not installed: pip install 'starpo[ray]'"
        ) from error
    resources = settings.cell
    if not settings.autoscales:
        check_room(ray.nodes(), resources, 1, "cell (STARPO_RAY_CELL_CPUS, _GPUS, _RESOURCES)")
    num_threads = max(1, int(settings.cell_cpus))
    options = {
        "num_cpus": resources.pop("CPU", 0),
        "num_gpus": resources.pop("GPU", 0),
        "resources": resources,
        # a cell plays in its own process, on its own resources: separate actors would wait forever for free resources
        "runtime_env": {"env_vars": {"STARPO_POOL": "processes", "STARPO_THREADS": str(num_threads)}},
    }
    with remote_options(**options), RayTaskRunner() as runner:
        yield runner
