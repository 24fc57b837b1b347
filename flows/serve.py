"""The long-lived process that serves the deployments: `python -m starpo.flows.serve [READY_FILE]`.

Every run is started in a separate process.
"""

import asyncio
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from prefect.client.orchestration import get_client
from prefect.exceptions import ObjectNotFound
from prefect.runner import Runner

from starpo.flows.abandoned import crash_abandoned
from starpo.flows.background import ServerError
from starpo.flows.deployments import deployments


def register(name: str | None = None) -> bool:
    """Update deployments on the server, so that it validates parameters against the current settings.

    The serving process needs no update: it looks up runs by the id of their deployment, which does not change.

    Args:
        name: Flow and deployment, such as `starpo/sokoban`. None for all. Those with a schedule are never updated, as
            it may have been resumed on the server.

    Returns:
        Whether the server already had all of them; if not, the serving process does not poll for their runs.
    """
    is_whole = True
    with get_client(sync_client=True) as client:
        for deployed in deployments():
            if name not in (None, deployed.full_name):
                continue
            try:
                client.read_deployment_by_name(deployed.full_name)
            except ObjectNotFound:
                is_whole = False
                continue
            if not deployed.cron:
                asyncio.run(deployed.to_runner().aapply())
    return is_whole


class _Serving(Runner):
    """Prefect's runner, which a signal ends like Ctrl-C; Prefect's own handler never awaits the coroutine it calls."""

    _serving: "asyncio.Task[Any] | None" = None

    async def start(self, *args: Any, **kwargs: Any) -> None:
        self._serving = asyncio.current_task()
        await super().start(*args, **kwargs)

    def handle_sigterm(self, *_: Any, **__: Any) -> None:
        assert self._serving is not None
        self._serving.get_loop().call_soon_threadsafe(self._serving.cancel)


def serve_deployments(ready_file: Path | None = None) -> None:
    """Register the deployments and execute their flow runs, at most two at a time, until interrupted.

    Args:
        ready_file: Touched when the deployments are ready to run.
    """
    with suppress(ServerError):  # such as one that is busy; it is tried again when the process next starts
        crash_abandoned()
    runner = _Serving(name="starpo", limit=2, pause_on_shutdown=False)
    for deployed in deployments():
        runner.add_deployment(deployed.to_runner())
    if ready_file:
        ready_file.touch()
    with suppress(asyncio.CancelledError, KeyboardInterrupt):
        asyncio.run(runner.start())


if __name__ == "__main__":
    serve_deployments(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
