"""wandb, offline unless configured; a run never waits for it and never fails because of it."""

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from starpo.ragen.config.runtime import Runtime

_log = logging.getLogger(__name__)


class Tracker:
    """Logs every metric of a run.

    Args:
        run: The run's name; continuing the run continues its curves.
        config: The resolved configuration.
    """

    def __init__(self, run: str, config: dict[str, Any]) -> None:
        import wandb

        runtime = Runtime.current()
        try:
            self._run = wandb.init(
                project=runtime.wandb_project,
                id=run,
                name=run,
                config=config,
                mode=runtime.wandb_mode,
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
        """Log a stage's metrics, beside what comes next; iterations must not fall. A failure is a warning."""
        self._sender.submit(self._send, {**metrics, "iteration": iteration}, iteration)

    def close(self) -> None:
        """End the wandb run when all is logged. A failure is a warning."""
        self._sender.shutdown(wait=True)
        try:
            self._run.finish()
        except Exception as error:
            _log.warning("not all logged metrics have reached wandb: %s", error)

    def _send(self, values: dict[str, float], step: int) -> None:
        try:
            self._run.log(values, step=step)
        except Exception as error:  # pages that lack a point are no reason to stop training
            _log.warning("metrics of iteration %d could not be logged to wandb: %s", step, error)
