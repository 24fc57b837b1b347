"""All deployments, for `ragen up` and for work pools: `python -m starpo.flows.deployments > prefect.yaml`.

Each preset is a deployment of the flow `starpo`, and `starpo/custom` takes any settings. Each preset with a tiny policy
is also a deployment of `warm-start`. `replay/updates` replays a run. Each grid is a deployment of `ablation`, and
`ablation/custom` takes any grid. Each sweep is a deployment of `eval-sweep` with a paused schedule, and
`eval-sweep/custom` takes any sweep. `audit/hourly` audits the running runs.
"""

import sys
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from typing import Any

import yaml  # type: ignore[import-untyped]
from prefect import Flow
from prefect.client.schemas.objects import ConcurrencyLimitConfig, ConcurrencyLimitStrategy
from prefect.deployments.runner import EntrypointType, RunnerDeployment
from prefect.schedules import Cron
from pydantic import BaseModel

from starpo.flows.ablation import ablation
from starpo.flows.audit import audit
from starpo.flows.console.terminal import write
from starpo.flows.eval_sweep import eval_sweep
from starpo.flows.presets import GRIDS, SWEEPS, names, preset
from starpo.flows.replay import replay
from starpo.flows.starpo import starpo
from starpo.flows.warm_start import warm_start
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.studies.grid import Grid
from starpo.ragen.studies.sweep import Sweep

CPU_POOL, GPU_POOL = "starpo", "gpu"
"""Work pools. Sweeps consist of evaluations alone, so they run where the GPUs are."""

_BY_MODULE = EntrypointType.MODULE_PATH

_HEADER = """\
# Generated from flows/deployments.py by `make deployments`; `ragen up` serves the same without a pool. With pools:
#   prefect work-pool create starpo --type process    and the same for the pool gpu
#   prefect --no-prompt deploy --all
#   prefect worker start --pool starpo                and one for gpu, where evaluations of sweeps go
"""


@dataclass(frozen=True)
class Deployed:
    """A deployment.

    Attributes:
        flow: The flow.
        name: Its name.
        tags: Tags of its flow runs.
        parameters: Default parameters of its flow runs.
        settings: A parameter with all settings of the preset named in `parameters`, to prefill forms in the UI.
        cron: Cron schedule; empty if it has none.
        is_active: Whether the schedule is active from the start.
        pool: Work pool, if work pools are used.
    """

    flow: Flow[Any, Any]
    name: str
    tags: tuple[str, ...]
    parameters: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    cron: str = ""
    is_active: bool = True
    pool: str = CPU_POOL

    @property
    def full_name(self) -> str:
        """`flow/deployment`."""
        return f"{self.flow.name}/{self.name}"

    def to_runner(self) -> RunnerDeployment:
        """Convert to the form that `ragen up` serves."""
        own: dict[str, Any] = {"tags": list(self.tags), "parameters": self.parameters | self.settings}
        if not self.cron:
            return _described(self.flow).model_copy(update={"name": self.name, **own})
        one_at_a_time = ConcurrencyLimitConfig(limit=1, collision_strategy=ConcurrencyLimitStrategy.CANCEL_NEW)
        schedule = Cron(self.cron, active=self.is_active)
        return RunnerDeployment.from_flow(
            self.flow, self.name, entrypoint_type=_BY_MODULE, schedule=schedule, concurrency_limit=one_at_a_time, **own
        )  # fmt: skip

    def to_yaml(self) -> dict[str, Any]:
        """Convert to an entry of `prefect.yaml`."""
        entry: dict[str, Any] = {
            "name": self.name,
            "entrypoint": f"{self.flow.fn.__module__}.{self.flow.fn.__name__}",
            "tags": list(self.tags),
            "work_pool": {"name": self.pool},
        }
        if self.parameters:
            entry["parameters"] = dict(self.parameters)  # a copy: YAML would write an alias for a shared object
        if self.cron:
            entry["schedules"] = [{"cron": self.cron, "timezone": "UTC", "active": self.is_active}]
            entry["concurrency_limit"] = {"limit": 1, "collision_strategy": "CANCEL_NEW"}
        return entry


@cache
def _described(flow: Flow[Any, Any]) -> RunnerDeployment:
    """Return the deployment that others of a flow are copied from; deriving the schema takes tenths of a second."""
    return RunnerDeployment.from_flow(flow, flow.name, entrypoint_type=_BY_MODULE)


def deployments() -> list[Deployed]:
    """Return all deployments. A preset whose environment cannot be loaded is reported and skipped."""
    made = []
    for name in names():
        try:
            config = preset(name)
        except ConfigError as error:
            write(f"preset {name} is not served: {error}", sys.stderr)
            continue
        parameters, settings = {"preset": name}, {"config": config.model_dump(mode="json")}
        made.append(Deployed(starpo, name, ("starpo", config.environment.type), parameters, settings))
        if config.policy.type == "tiny":
            made.append(Deployed(warm_start, name, ("warm-start", config.environment.type), parameters))
    made += [Deployed(starpo, "custom", ("starpo",)), Deployed(replay, "updates", ("replay",))]
    for name in GRIDS.names():
        made.append(Deployed(ablation, name, ("ablation",), {"grid": _short(Grid.load(GRIDS.path(name)))}))
    made.append(Deployed(ablation, "custom", ("ablation",)))
    for name in SWEEPS.names():  # paused: on a single machine it would take cores from the runs
        sweep = {"sweep": _short(Sweep.load(SWEEPS.path(name)))}
        made.append(
            Deployed(eval_sweep, name, ("eval-sweep",), sweep, cron="37 * * * *", is_active=False, pool=GPU_POOL)
        )
    made.append(Deployed(eval_sweep, "custom", ("eval-sweep",), pool=GPU_POOL))
    made.append(Deployed(audit, "hourly", ("audit",), cron="7 * * * *"))
    return made


def _short(model: BaseModel) -> dict[str, Any]:
    return model.model_dump(mode="json", exclude_unset=True)


def prefect_yaml() -> str:
    """Return the content of `prefect.yaml`, for work pools."""
    content = {
        "name": "starpo",
        "prefect-version": version("prefect"),
        "pull": [{"prefect.deployments.steps.set_working_directory": {"directory": "{{ $PWD }}"}}],
        "deployments": [deployed.to_yaml() for deployed in deployments()],
    }
    return _HEADER + yaml.safe_dump(content, sort_keys=False, width=110)


if __name__ == "__main__":
    write(prefect_yaml().rstrip())
