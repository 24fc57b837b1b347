"""Logging to wandb, offline unless configured; it never blocks a run and never makes it fail."""

import logging
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from starpo.ragen.config.runtime import Runtime

_log = logging.getLogger(__name__)


class Tracker:
    """Logs every metric of a run.

    Args:
        run: Name of the run; resuming the run continues its curves.
        config: Resolved configuration.
    """

    def __init__(self, run: str, config: dict[str, Any]) -> None:
        import wandb

        runtime = Runtime.current()
        if runtime.wandb_mode != "disabled":
            _keep_log_off_terminal(runtime.state_dir)
        try:
            self._run = wandb.init(
                project=runtime.wandb_project,
                id=run,
                name=run,
                config=config,
                mode=runtime.wandb_mode,
                reinit="create_new",  # a notebook may have a run of its own, which stays as it is
                dir=runtime.state_dir,
                resume="allow" if runtime.wandb_mode == "online" else None,
                settings=wandb.Settings(
                    silent=True, console="off", disable_git=True, init_timeout=20, x_disable_stats=True
                ),
            )
        except Exception as error:  # no account, no network
            _log.warning("run %s is not logged to wandb, which cannot be started: %s", run, error)
            self._run = wandb.init(mode="disabled")
        self._sender = ThreadPoolExecutor(1, thread_name_prefix="tracker")

    def log(self, iteration: int, metrics: dict[str, float]) -> None:
        """Log the metrics of a stage in the background; iterations must not decrease. Failures are only warnings."""
        self._sender.submit(self._send, {**metrics, "iteration": iteration}, iteration)

    def close(self) -> None:
        """Finish the wandb run after everything is logged. Failures are only warnings."""
        self._sender.shutdown(wait=True)
        try:
            self._run.finish()
        except Exception as error:
            _log.warning("not all logged metrics have reached wandb: %s", error)

    def _send(self, values: dict[str, float], step: int) -> None:
        try:
            self._run.log(values, step=step)
        except Exception as error:  # a missing point is no reason to stop training
            _log.warning("metrics of iteration %d could not be logged to wandb: %s", step, error)


def _keep_log_off_terminal(folder: str) -> None:
    """Have wandb's process log to a folder if it cannot to the user's cache: under a read-only home it would print."""
    from wandb.env import CACHE_DIR, get_cache_dir

    cache = Path(get_cache_dir())
    with suppress(OSError):
        cache.mkdir(parents=True, exist_ok=True)
    if not os.access(cache, os.W_OK):
        os.environ[CACHE_DIR] = str(Path(folder).absolute())
