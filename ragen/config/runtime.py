"""`Runtime`: where things are and how much of the machine to use. Never what numbers come out.

Read from environment variables `RAGEN_...`; everything that decides what a run computes is in `StarPOConfig`.
"""

import os
from functools import cache
from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


def _available_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Runtime(BaseSettings):
    """Endpoints and resources of this machine."""

    model_config = SettingsConfigDict(env_prefix="RAGEN_", frozen=True, use_attribute_docstrings=True)

    store: str = "var/store"
    """The artifact store: a folder, or any fsspec URL such as s3://bucket/prefix."""
    cache_gb: float = Field(default=50.0, gt=0)
    """Gigabytes that this machine's copies of a remote store's artifacts (~/.cache/starpo) may take up."""
    state_dir: str = "var"
    """Folder of what the local server, its logs and wandb's offline runs leave behind."""
    sql_timeout_s: float = Field(default=60.0, gt=0)
    """Seconds that a question of `ragen sql`, or each of an audit's, may take inside of the database."""
    sql_memory_gb: float = Field(default=4.0, ge=0.1)
    """Gigabytes of memory that the database may take up; what does not fit it writes to a temporary folder."""
    sql_spill_gb: float = Field(default=20.0, ge=0)
    """Gigabytes that this folder may take up."""
    threads: int = Field(default_factory=_available_cores, ge=1)
    """CPU threads of rollouts and updates. On one machine type, the same number gives the same bytes."""
    vllm_python: str | None = None
    """Interpreter of the environment that has vLLM. None: this one if it has it, else the one that `make vllm` made."""
    should_check_memory: bool = True
    """Refuse a run whose estimated memory this machine does not have (`ragen plan`)."""
    pool: Literal["processes", "ray"] = "processes"
    """Who plays rollouts, and cells of sweeps and ablations: processes of this machine, or actors and tasks of a Ray
    cluster (`ragen.config.ray_runtime`). The same shard gives the same rows, so it is no setting of a run."""
    wandb_mode: Literal["online", "offline", "disabled"] = "offline"
    """Where wandb metrics go. 'online' needs an account; a run never waits for the network."""
    wandb_project: str = "starpo"
    """The wandb project."""

    @classmethod
    def current(cls) -> "Runtime":
        """Those of the environment as it is now, which is read anew only where it has changed.

        Raises:
            pydantic.ValidationError: If one of them is not what it should be.
        """
        prefix = cls.model_config["env_prefix"]
        variables = frozenset(item for item in os.environ.items() if item[0].upper().startswith(prefix))
        return _read(variables, _available_cores())


@cache
def _read(_variables: frozenset[tuple[str, str]], _num_cores: int) -> Runtime:
    return Runtime()
