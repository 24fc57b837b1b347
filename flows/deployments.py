"""The deployments, in one list for `ragen up` and for work pools: `python -m starpo.flows.deployments > prefect.yaml`.

Each preset is a deployment of the flow `starpo`, and `starpo/custom` takes any settings; the warm starts of those
presets with a tiny policy are deployments of `warm-start`; `replay/updates` replays a run; each grid but the papers'
own is a deployment of `ablation`, and `ablation/custom` takes any; each sweep is a deployment of `eval-sweep` with a
schedule that is to be resumed, and `eval-sweep/custom` takes any.
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
from starpo.flows.presets import GRIDS, SWEEPS, names, preset, served_grids
from starpo.flows.replay import replay
from starpo.flows.starpo import starpo
from starpo.flows.warm_start import warm_start
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.studies.ablation.grid import Grid
from starpo.ragen.studies.sweep.sweep import Sweep

CPU_POOL, GPU_POOL = "starpo", "gpu"
"""Work pools. Sweeps are evaluations and nothing else, so they go where the GPUs are."""

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
        flow: What it runs.
        name: Its name.
        tags: Of its runs.
        parameters: That its runs have, unless told otherwise.
        settings: A parameter with all settings of the preset that `parameters` names, for forms to show.
        cron: When it runs by itself; "": never.
        is_active: Does it do so from the start?
        pool: Whose workers run it, where there are pools.
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
        """As `ragen up` serves it."""
        own: dict[str, Any] = {"tags": list(self.tags), "parameters": self.parameters | self.settings}
        if not self.cron:
            return _described(self.flow).model_copy(update={"name": self.name, **own})
        one_at_a_time = ConcurrencyLimitConfig(limit=1, collision_strategy=ConcurrencyLimitStrategy.CANCEL_NEW)
        schedule = Cron(self.cron, active=self.is_active)
        return RunnerDeployment.from_flow(
            self.flow, self.name, entrypoint_type=_BY_MODULE, schedule=schedule, concurrency_limit=one_at_a_time, **own
        )  # fmt: skip

    def to_yaml(self) -> dict[str, Any]:
        """As `prefect.yaml` has it."""
        entry: dict[str, Any] = {
            "name": self.name,
            "entrypoint": f"{self.flow.fn.__module__}.{self.flow.fn.__name__}",
            "tags": list(self.tags),
            "work_pool": {"name": self.pool},
        }
        if self.parameters:
            entry["parameters"] = dict(self.parameters)  # a copy: YAML would refer to the same one elsewhere
        if self.cron:
            entry["schedules"] = [{"cron": self.cron, "timezone": "UTC", "active": self.is_active}]
            entry["concurrency_limit"] = {"limit": 1, "collision_strategy": "CANCEL_NEW"}
        return entry


@cache
def _described(flow: Flow[Any, Any]) -> RunnerDeployment:
    """What all deployments of a flow have in common; reading the schema off a flow takes tenths of a second."""
    return RunnerDeployment.from_flow(flow, flow.name, entrypoint_type=_BY_MODULE)


def deployments() -> list[Deployed]:
    """All of them. A preset whose environment cannot be loaded is told of and left out: the others can be served."""
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
    for name in served_grids():
        made.append(Deployed(ablation, name, ("ablation",), {"grid": _short(Grid.load(GRIDS.path(name)))}))
    made.append(Deployed(ablation, "custom", ("ablation",)))
    for name in SWEEPS.names():  # not active: on a single machine it would take cores from the runs
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
    """The file for work pools."""
    content = {
        "name": "starpo",
        "prefect-version": version("prefect"),
        "pull": [{"prefect.deployments.steps.set_working_directory": {"directory": "{{ $PWD }}"}}],
        "deployments": [deployed.to_yaml() for deployed in deployments()],
    }
    return _HEADER + yaml.safe_dump(content, sort_keys=False, width=110)


if __name__ == "__main__":
    write(prefect_yaml().rstrip())
