"""`RayRuntime`: what rollout actors and cells ask a Ray cluster for. Never what numbers come out.

Read from environment variables `RAGEN_RAY_...`, like `ragen.config.runtime.Runtime`, which says whether Ray is used at
all (`RAGEN_POOL`). The cluster is that of `RAY_ADDRESS`, Ray's own variable; without it, one on this machine.
"""

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class RayRuntime(BaseSettings):
    """Resources and time limits on Ray."""

    model_config = SettingsConfigDict(env_prefix="RAGEN_RAY_", frozen=True, use_attribute_docstrings=True)

    actors: int | None = Field(None, ge=1, le=10_000)
    """Rollout actors. None: as many as RAGEN_THREADS."""
    actor_cpus: float = Field(0.5, ge=0)
    """CPUs that a rollout actor holds, as Ray counts them; it computes on one thread. Below 1, other tasks find room
    beside the actors of a small machine."""
    actor_gpus: float = Field(0, ge=0)
    """GPUs that a rollout actor holds: a fraction shares one; a whole number n gives it n of one node, as many as
    `rollout.vllm.tensor_parallel_size` needs."""
    actor_resources: dict[str, float] = {}
    """Custom resources that a rollout actor holds, as JSON: {"rollout": 1}."""
    cell_cpus: float = Field(1, ge=0)
    """CPUs that a cell of a sweep or an ablation holds; it computes on as many threads, at least one."""
    cell_gpus: float = Field(0, ge=0)
    """GPUs that a cell holds."""
    cell_resources: dict[str, float] = {}
    """Custom resources that a cell holds, as JSON."""
    autoscales: bool = False
    """Does the cluster add nodes when they are asked for? Then what it does not have is waited for, for `start_s`."""
    start_s: float = Field(300, gt=0)
    """Seconds in which an actor must be placed, started and at its checkpoint."""
    shard_s: float = Field(3600, gt=0)
    """Seconds after which an actor that has not answered for a shard is hung, and another takes its place. Where
    `rollout.deadline_s` is set: a minute after that, if that is earlier."""

    @property
    def actor(self) -> dict[str, float]:
        """What an actor asks for, by Ray's names; what it asks nothing of is left out."""
        return _asked(self.actor_cpus, self.actor_gpus, self.actor_resources)

    @property
    def cell(self) -> dict[str, float]:
        """What a cell asks for."""
        return _asked(self.cell_cpus, self.cell_gpus, self.cell_resources)


def _asked(cpus: float, gpus: float, others: dict[str, float]) -> dict[str, float]:
    return {name: amount for name, amount in {"CPU": cpus, "GPU": gpus, **others}.items() if amount > 0}
