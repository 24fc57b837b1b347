"""`Runtime`: locations and machine resources, which never affect what a run computes.

Read from environment variables `STARPO_...`; every setting that affects results is in `StarPOConfig`.
"""

import os
from typing import Literal

from pydantic import Field

from starpo.ragen.core.limits import CallLimits, read_variables


def _available_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Runtime(CallLimits):
    """Endpoints and resources of this machine."""

    store: str = "var/store"
    """The artifact store: a folder, or any fsspec URL such as s3://bucket/prefix."""
    cache_gb: float = Field(default=50.0, gt=0)
    """Maximum size, in gigabytes, of this machine's local cache of a remote store's artifacts (~/.cache/starpo)."""
    state_dir: str = "var"
    """Folder for the files of the local server, its logs and wandb's offline runs."""
    sql_timeout_s: float = Field(default=60.0, gt=0)
    """Time limit in seconds of a query of `starpo sql`, and of each query of an audit, inside the database."""
    sql_memory_gb: float = Field(default=4.0, ge=0.1)
    """Memory limit of the database in gigabytes; beyond it, data is spilled to a temporary folder."""
    sql_spill_gb: float = Field(default=20.0, ge=0)
    """Size limit of this folder in gigabytes."""
    threads: int = Field(default_factory=_available_cores, ge=1)
    """CPU threads for rollouts and updates. On one machine type, the same number gives the same bytes."""
    vllm_python: str | None = None
    """Interpreter of the environment with vLLM. None: the current one if it has vLLM, else the one created by `make
    vllm`."""
    inspect_python: str | None = None
    """Interpreter of the environment with inspect-ai, which reads logs of Inspect. None: the current one if it has
    inspect-ai, else that of the command `inspect` on the PATH."""
    should_repeat: bool = True
    """On a GPU, compute gradients with deterministic kernels alone, and fix every choice of kernels, so that the same
    stage gives the same bytes on the same type of GPU with the same software. False: updates up to 1.6 times faster
    (bfloat16, H200); manifests then say that what was computed need not repeat, `starpo verify` cannot show it, and
    dropped checkpoints cannot be derived. No effect on the CPU, which always repeats."""
    should_check_memory: bool = True
    """Reject a run whose estimated memory exceeds that of this machine (`starpo plan`)."""
    pool: Literal["processes", "ray"] = "processes"
    """Where rollouts, and cells of sweeps and ablations, run: processes on this machine, or actors and tasks on a Ray
    cluster (`ragen.config.ray_runtime`). The same shard gives the same rows, so this is not a setting of a run."""
    wandb_mode: Literal["online", "offline", "disabled"] = "offline"
    """Destination of wandb metrics. 'online' needs an account; a run never waits for the network."""
    wandb_project: str = "starpo"
    """The wandb project."""

    @classmethod
    def current(cls) -> "Runtime":
        """Return the settings of the current environment, parsed again only if it has changed.

        Raises:
            pydantic.ValidationError: If a variable has an invalid value.
        """
        return read_variables(cls, _available_cores())
