"""`RayRuntime`: resources that rollout actors and cells request from a Ray cluster. They never affect results.

Read from environment variables `STARPO_RAY_...`, like `ragen.config.runtime.Runtime`, which selects whether Ray is used
at all (`STARPO_POOL`). The cluster is that of `RAY_ADDRESS`, Ray's own variable; without it, one on this machine.
"""

import math

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

_OWN_RESOURCES = ("CPU", "GPU", "memory", "object_store_memory")
"""Names that Ray does not accept for custom resources."""


class RayRuntime(BaseSettings):
    """Resources and time limits on Ray."""

    model_config = SettingsConfigDict(env_prefix="STARPO_RAY_", frozen=True, use_attribute_docstrings=True)

    actors: int | None = Field(None, ge=1, le=10_000)
    """Number of rollout actors. None: STARPO_THREADS."""
    actor_cpus: float = Field(0.5, ge=0)
    """Logical CPUs that a rollout actor reserves; it computes on one thread. Below 1, other tasks fit beside the actors
    of a small machine."""
    actor_gpus: float = Field(0, ge=0)
    """GPUs that a rollout actor reserves: a fraction shares a GPU; a whole number n reserves n GPUs of one node, as
    many as `rollout.vllm.tensor_parallel_size` needs."""
    actor_resources: dict[str, float] = {}
    """Custom resources that a rollout actor reserves, as JSON: {"rollout": 1}."""
    cell_cpus: float = Field(1, ge=0)
    """CPUs that a cell of a sweep or an ablation reserves; it computes on as many threads, at least one."""
    cell_gpus: float = Field(0, ge=0)
    """GPUs that a cell reserves."""
    cell_resources: dict[str, float] = {}
    """Custom resources that a cell reserves, as JSON."""
    autoscales: bool = False
    """Whether the cluster adds nodes on demand. If so, missing resources are waited for, up to `start_s`."""
    start_s: float = Field(300, gt=0)
    """Time limit, in seconds, for placing and starting an actor and loading its checkpoint."""
    shard_s: float = Field(3600, gt=0)
    """Seconds after which an actor that has not returned a shard counts as hung and is replaced. If
    `rollout.deadline_s` is set: one minute after that deadline, if that is earlier."""

    @field_validator("actor_resources", "cell_resources")
    @classmethod
    def _are_custom(cls, resources: dict[str, float]) -> dict[str, float]:
        for name, amount in resources.items():
            if name in _OWN_RESOURCES:
                raise ValueError(
                    f"'{name}' is Ray's own resource; expected custom ones. CPUs and GPUs are set by "
                    "STARPO_RAY_ACTOR_CPUS, STARPO_RAY_CELL_CPUS, STARPO_RAY_ACTOR_GPUS, STARPO_RAY_CELL_GPUS"
                )
            if not 0 <= amount < math.inf:
                raise ValueError(f"{name} = {amount:g}; expected an amount of at least 0")
        return resources

    @property
    def actor(self) -> dict[str, float]:
        """Resources of an actor, by Ray's names; zero amounts are left out."""
        return _resources(self.actor_cpus, self.actor_gpus, self.actor_resources)

    @property
    def cell(self) -> dict[str, float]:
        """Resources of a cell."""
        return _resources(self.cell_cpus, self.cell_gpus, self.cell_resources)


def _resources(cpus: float, gpus: float, others: dict[str, float]) -> dict[str, float]:
    return {name: amount for name, amount in {"CPU": cpus, "GPU": gpus, **others}.items() if amount > 0}
