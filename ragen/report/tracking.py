"""wandb, offline unless configured; a run never waits for the network and never fails because of it."""

from typing import Any

from ragen.config.runtime import Runtime


class Tracker:
    """Logs every metric of a run.

    Args:
        run: The run's name; continuing the run continues its curves.
        config: The resolved configuration.
    """

    def __init__(self, run: str, config: dict[str, Any]) -> None:
        import wandb

        runtime = Runtime()
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

    def log(self, iteration: int, metrics: dict[str, float]) -> None:
        """Log a stage's metrics; iterations must not fall."""
        self._run.log({**metrics, "iteration": iteration}, step=iteration)

    def close(self) -> None:
        """End the wandb run."""
        self._run.finish()
