"""The deployments, served by one long-lived process: `python -m starpo.flows.serve [READY_FILE]`.

Each preset is a deployment of the flow `starpo`, and `starpo/custom` takes any settings; the warm starts of those
presets with a tiny policy are deployments of `warm-start`; `replay/updates` replays a run; each grid is a deployment of
`ablation`, and `ablation/custom` takes any; each sweep is a deployment of `eval-sweep` with a schedule that is to be
resumed, and `eval-sweep/custom` takes any. Every run is started in a process of its own.
"""

import asyncio
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import ConcurrencyLimitConfig, ConcurrencyLimitStrategy
from prefect.deployments.runner import EntrypointType, RunnerDeployment
from prefect.exceptions import ObjectNotFound
from prefect.runner import Runner
from prefect.schedules import Cron

from starpo.flows.ablation import ablation
from starpo.flows.audit import audit
from starpo.flows.console.terminal import write
from starpo.flows.eval_sweep import eval_sweep
from starpo.flows.presets import grids, names, preset, sweeps
from starpo.flows.replay import replay
from starpo.flows.starpo import starpo
from starpo.flows.store_credentials import load_credentials
from starpo.flows.warm_start import warm_start
from starpo.ragen.core.errors import ConfigError


def deployments() -> list[RunnerDeployment]:
    """Every deployment, with its preset as default parameters."""
    return [make() for make in _makers().values()]


def register(name: str | None = None) -> bool:
    """Have deployments on the server as they are here, so that it judges parameters by the settings of today.

    The process that serves them is told nothing: it starts runs by their deployment's id, which stays.

    Args:
        name: Flow and deployment, such as `starpo/sokoban`. None: all but those with a schedule, which may have been
            resumed there.

    Returns:
        False: the server has not had one of them, so the process that serves does not look for its runs.
    """
    makers = _makers()
    made = [makers[name]()] if name is not None else [make() for make in makers.values()]
    is_whole = True
    with get_client(sync_client=True) as client:
        for deployment in made:
            try:
                client.read_deployment_by_name(deployment.full_name)
            except ObjectNotFound:
                is_whole = False
                continue
            if not deployment.schedules:
                deployment.apply()
    return is_whole


def _makers() -> dict[str, Callable[[], RunnerDeployment]]:
    """Flow and deployment -> what makes it: reading the schema off a flow takes a tenth of a second."""
    makers: dict[str, Callable[[], RunnerDeployment]] = {}

    def add(flow: Any, name: str, tags: list[str], **rest: Any) -> None:
        options = {"name": name, "tags": tags, "entrypoint_type": EntrypointType.MODULE_PATH, **rest}
        makers[f"{flow.name}/{name}"] = partial(flow.to_deployment, **options)

    for name in names():
        try:
            config = preset(name)
        except ConfigError as error:  # such as one whose environment cannot be loaded: the others can be served
            write(f"preset {name} is not served: {error}", sys.stderr)
            continue
        parameters = {"config": config.model_dump(mode="json"), "preset": name}
        add(starpo, name, ["starpo", config.environment.type], parameters=parameters)
        if config.policy.type == "tiny":
            add(warm_start, name, ["warm-start", config.environment.type], parameters=parameters)
    add(starpo, "custom", ["starpo"])
    add(replay, "updates", ["replay"])
    for name in grids.names():
        add(ablation, name, ["ablation"], parameters={"grid": grids.grid(name).model_dump(mode="json")})
    add(ablation, "custom", ["ablation"])
    one_at_a_time = ConcurrencyLimitConfig(limit=1, collision_strategy=ConcurrencyLimitStrategy.CANCEL_NEW)
    for name in sweeps.names():
        add(
            eval_sweep,
            name,
            ["eval-sweep"],
            parameters={"sweep": sweeps.sweep(name).model_dump(mode="json")},
            schedule=Cron("37 * * * *", active=False),  # it would take cores from the runs of a single machine
            concurrency_limit=one_at_a_time,
        )
    add(eval_sweep, "custom", ["eval-sweep"])
    add(audit, "hourly", ["audit"], cron="7 * * * *", concurrency_limit=one_at_a_time)
    return makers


class _Serving(Runner):
    """Prefect's runner, ended by a signal as by Ctrl-C: Prefect's own handler never awaits what it calls."""

    _serving: "asyncio.Task[Any] | None" = None

    async def start(self, *args: Any, **kwargs: Any) -> None:
        self._serving = asyncio.current_task()
        await super().start(*args, **kwargs)

    def handle_sigterm(self, *_: Any, **__: Any) -> None:
        assert self._serving is not None
        self._serving.get_loop().call_soon_threadsafe(self._serving.cancel)


def serve_deployments(ready_file: Path | None = None, limit: int = 2) -> None:
    """Register the deployments and run what is asked of them until interrupted.

    Args:
        ready_file: Touched when the deployments can be run.
        limit: Flow runs at a time.
    """
    load_credentials()  # runs inherit them
    runner = _Serving(name="starpo", limit=limit, pause_on_shutdown=False)
    for deployment in deployments():
        runner.add_deployment(deployment)
    if ready_file:
        ready_file.touch()
    with suppress(asyncio.CancelledError, KeyboardInterrupt):
        asyncio.run(runner.start())


if __name__ == "__main__":
    serve_deployments(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
