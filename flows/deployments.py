"""All deployments, for `starpo up` and for work pools: `python -m starpo.flows.deployments > prefect.yaml`.

Each preset is a deployment of the flow `starpo`, and `starpo/custom` takes any settings. `replay/updates` replays a
run. `ablation/custom` takes any grid and `eval-sweep/custom` any sweep. `audit/hourly` audits the running runs.
"""

import hashlib
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from typing import Any, cast
from uuid import UUID

import yaml  # type: ignore[import-untyped]
from prefect import Flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import ConcurrencyLimitConfig, ConcurrencyLimitStrategy
from prefect.deployments.runner import EntrypointType, RunnerDeployment
from prefect.exceptions import ObjectNotFound
from prefect.schedules import Cron

from starpo.flows.ablation import ablation
from starpo.flows.audit import audit
from starpo.flows.eval_sweep import eval_sweep
from starpo.flows.presets import names, preset
from starpo.flows.replay import replay
from starpo.flows.starpo import starpo
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.core.visible import visible

CPU_POOL, GPU_POOL = "starpo", "gpu"
"""Work pools. Sweeps consist of evaluations alone, so they run where the GPUs are."""

_BY_MODULE = EntrypointType.MODULE_PATH

_HEADER = """\
# Generated from flows/deployments.py by `make deployments`; `starpo up` serves the same without a pool. With pools:
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
        parameters: Default parameters of its flow runs.
        settings: A parameter with all settings of the preset named in `parameters`, to prefill forms in the UI.
        cron: Cron schedule; empty if it has none.
        pool: Work pool, if work pools are used.
    """

    flow: Flow[Any, Any]
    name: str
    parameters: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    cron: str = ""
    pool: str = CPU_POOL

    @property
    def full_name(self) -> str:
        """`flow/deployment`."""
        return f"{self.flow.name}/{self.name}"

    def to_runner(self) -> "ServedDeployment":
        """Convert to the form that `starpo up` serves."""
        parameters = self.parameters | self.settings
        if not self.cron:
            return _described(self.flow).model_copy(update={"name": self.name, "parameters": parameters}).versioned()
        one_at_a_time = ConcurrencyLimitConfig(limit=1, collision_strategy=ConcurrencyLimitStrategy.CANCEL_NEW)
        schedule = Cron(self.cron)
        scheduled = ServedDeployment.from_flow(
            self.flow, self.name, entrypoint_type=_BY_MODULE, parameters=parameters, schedule=schedule,
            concurrency_limit=one_at_a_time,
        )  # fmt: skip
        return cast(ServedDeployment, scheduled).versioned()

    def to_yaml(self) -> dict[str, Any]:
        """Convert to an entry of `prefect.yaml`."""
        entry: dict[str, Any] = {
            "name": self.name,
            "entrypoint": f"{self.flow.fn.__module__}.{self.flow.fn.__name__}",
            "work_pool": {"name": self.pool},
        }
        if self.parameters:
            entry["parameters"] = self.parameters
        if self.cron:
            entry["schedules"] = [{"cron": self.cron, "timezone": "UTC", "active": True}]
            entry["concurrency_limit"] = {"limit": 1, "collision_strategy": "CANCEL_NEW"}
        return entry


class ServedDeployment(RunnerDeployment):
    """A deployment whose version is a digest of it, so that it is sent only to a server that has another version.

    The server checks the schema of all settings, half a second for each deployment.
    """

    def versioned(self) -> "ServedDeployment":
        """Return this deployment with its version."""
        content = self.model_dump_json(exclude={"version"}) + self._parameter_openapi_schema.model_dump_json()
        versioned = self.model_copy(update={"version": hashlib.sha256(content.encode()).hexdigest()[:12]})
        versioned._version_from_flow = False  # else Prefect replaces it by the commit, where there is one
        return versioned

    async def aapply(self, *args: Any, **kwargs: Any) -> UUID:
        """Register it unless the server has this version; returns its id."""
        with suppress(ObjectNotFound):
            async with get_client() as client:
                registered = await client.read_deployment_by_name(self.full_name)
            if registered.version == self.version:
                return registered.id
        return await super().aapply(*args, **kwargs)


@cache
def _described(flow: Flow[Any, Any]) -> ServedDeployment:
    """Return the deployment that others of a flow are copied from; deriving the schema takes tenths of a second."""
    return cast(ServedDeployment, ServedDeployment.from_flow(flow, flow.name, entrypoint_type=_BY_MODULE))


def deployments() -> list[Deployed]:
    """Return all deployments. A preset whose environment cannot be loaded is reported and skipped."""
    made = []
    for name in names():
        try:
            config = preset(name)
        except ConfigError as error:
            sys.stderr.write(visible(f"preset {name} is not served: {error}") + "\n")
            continue
        settings = {"config": config.model_dump(mode="json")}
        made.append(Deployed(starpo, name, {"preset": name}, settings))
    made += [Deployed(starpo, "custom"), Deployed(replay, "updates"), Deployed(ablation, "custom")]
    made.append(Deployed(eval_sweep, "custom", pool=GPU_POOL))
    made.append(Deployed(audit, "hourly", cron="7 * * * *"))
    return made


def prefect_yaml() -> str:
    """Return the content of `prefect.yaml`, for work pools."""
    begin = {
        "name": "starpo",
        "prefect-version": version("prefect"),
        "pull": [{"prefect.deployments.steps.set_working_directory": {"directory": "{{ $PWD }}"}}],
    }
    lines = [_HEADER, yaml.safe_dump(begin, sort_keys=False), "deployments:\n"]
    for made in deployments():
        lines.append("- " + yaml.safe_dump(made.to_yaml(), sort_keys=False, default_flow_style=True, width=1000))
    return "".join(lines)


if __name__ == "__main__":
    sys.stdout.write(prefect_yaml())
