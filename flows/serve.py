"""The deployments, served by one long-lived process: `python -m flows.serve [READY_FILE]`.

Each preset is a deployment of the flow `starpo`, and `starpo/custom` takes any settings; the warm starts of those
presets with a tiny policy are deployments of `warm-start`; `replay/updates` replays a run; each grid is a deployment of
`ablation`, and `ablation/custom` takes any; each sweep is a deployment of `eval-sweep` with a schedule that is to be
resumed, and `eval-sweep/custom` takes any. Every run is started in a process of its own.
"""

import asyncio
import sys
from pathlib import Path

from prefect.client.schemas.objects import ConcurrencyLimitConfig, ConcurrencyLimitStrategy
from prefect.deployments.runner import EntrypointType, RunnerDeployment
from prefect.runner import Runner
from prefect.schedules import Cron

from flows.ablation import ablation
from flows.audit import audit
from flows.eval_sweep import eval_sweep
from flows.presets import grids, names, preset, sweeps
from flows.replay import replay
from flows.starpo import starpo
from flows.store_credentials import load_credentials
from flows.warm_start import warm_start
from ragen.errors import ConfigError


def deployments() -> list[RunnerDeployment]:
    """Every deployment, with its preset as default parameters."""
    made: list[RunnerDeployment] = []
    for name in names():
        try:
            config = preset(name)
        except ConfigError as error:  # such as one whose environment cannot be loaded: the others can be served
            print(f"preset {name} is not served: {error}", file=sys.stderr)  # noqa: T201
            continue
        settings = config.model_dump(mode="json")
        made.append(
            starpo.to_deployment(  # type: ignore[arg-type]  # Prefect returns a coroutine only inside an event loop
                name=name,
                parameters={"config": settings, "preset": name},
                tags=["starpo", config.environment.type],
                entrypoint_type=EntrypointType.MODULE_PATH,
            )
        )
        if config.policy.type == "tiny":
            made.append(
                warm_start.to_deployment(  # type: ignore[arg-type]
                    name=name,
                    parameters={"config": settings, "preset": name},
                    tags=["warm-start", config.environment.type],
                    entrypoint_type=EntrypointType.MODULE_PATH,
                )
            )
    made.append(
        starpo.to_deployment(  # type: ignore[arg-type]
            name="custom", tags=["starpo"], entrypoint_type=EntrypointType.MODULE_PATH
        )
    )
    made.append(
        replay.to_deployment(  # type: ignore[arg-type]
            name="updates", tags=["replay"], entrypoint_type=EntrypointType.MODULE_PATH
        )
    )
    asked = {name: {"grid": grids.grid(name).model_dump(mode="json")} for name in grids.names()}
    for name, parameters in {**asked, "custom": {}}.items():
        made.append(
            ablation.to_deployment(  # type: ignore[arg-type]
                name=name, parameters=parameters, tags=["ablation"], entrypoint_type=EntrypointType.MODULE_PATH
            )
        )
    for name in sweeps.names():
        made.append(
            eval_sweep.to_deployment(  # type: ignore[arg-type]
                name=name,
                parameters={"sweep": sweeps.sweep(name).model_dump(mode="json")},
                schedule=Cron("37 * * * *", active=False),  # it would take cores from the runs of a single machine
                tags=["eval-sweep"],
                concurrency_limit=ConcurrencyLimitConfig(
                    limit=1, collision_strategy=ConcurrencyLimitStrategy.CANCEL_NEW
                ),
                entrypoint_type=EntrypointType.MODULE_PATH,
            )
        )
    made.append(
        eval_sweep.to_deployment(  # type: ignore[arg-type]
            name="custom", tags=["eval-sweep"], entrypoint_type=EntrypointType.MODULE_PATH
        )
    )
    made.append(
        audit.to_deployment(  # type: ignore[arg-type]
            name="hourly",
            cron="7 * * * *",
            tags=["audit"],
            concurrency_limit=ConcurrencyLimitConfig(limit=1, collision_strategy=ConcurrencyLimitStrategy.CANCEL_NEW),
            entrypoint_type=EntrypointType.MODULE_PATH,
        )
    )
    return made


def serve_deployments(ready_file: Path | None = None, limit: int = 2) -> None:
    """Register the deployments and run what is asked of them until interrupted.

    Args:
        ready_file: Touched when the deployments can be run.
        limit: Flow runs at a time.
    """
    load_credentials()  # runs inherit them
    runner = Runner(name="starpo", limit=limit, pause_on_shutdown=False)
    for deployment in deployments():
        runner.add_deployment(deployment)
    if ready_file:
        ready_file.touch()
    asyncio.run(runner.start())


if __name__ == "__main__":
    serve_deployments(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
