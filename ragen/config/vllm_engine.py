"""Settings of engine 'vllm'."""

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from starpo.ragen.config.engine import EngineConfig
from starpo.ragen.config.runtime import Runtime
from starpo.ragen.core.errors import MissingPackageError

_MADE = Path(__file__).resolve().parents[2] / ".venv-vllm" / "bin" / "python"


class VLLMEngineConfig(EngineConfig):
    """How vLLM holds the model and its KV cache."""

    needs_process_on_cpu: ClassVar[bool] = True  # it only works in the thread that started it
    runs_tiny_vision: ClassVar[bool] = False

    num_engines: int = Field(1, ge=1, le=64)
    """Number of copies of the model, each in its own process, which plays its share of the groups. More than one
    requires vLLM in a separate environment."""
    tensor_parallel_size: int = Field(1, ge=1, le=64)
    """Number of devices over which one copy of the model is sharded."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Dtype of weights, cache and arithmetic. 'auto': float32 on the CPU, bfloat16 on a GPU."""
    gpu_memory_utilization: float = Field(0.5, gt=0, le=1)
    """Share of a GPU's memory for weights and cache together; the rest is left to the learner. No effect if
    `kv_cache_gib` is set, or on the CPU."""
    kv_cache_gib: float | None = Field(None, gt=0)
    """Size of the KV cache in GiB per device. None: what `gpu_memory_utilization` leaves; on the CPU 1."""
    max_num_seqs: int = Field(256, ge=1, le=65536)
    """Maximum number of trajectories decoded together; more wait in a queue."""
    max_num_batched_tokens: int | None = Field(None, ge=32)
    """Maximum number of tokens per step, prompts and responses together. None: vLLM's default."""
    enforce_eager: bool = False
    """Disable CUDA graphs: a faster start, slower steps. Always so on the CPU."""
    max_lora_rank: int | None = Field(None, ge=1, le=512)
    """Serve a checkpoint's LoRA adapter beside the weights, which then stay loaded, up to this rank. None: adapters are
    merged into the weights at each update, which makes updates slower and steps faster."""
    should_seed_requests: bool = True
    """Seed each response separately, so that a trajectory has its own random numbers. On a GPU this costs one kernel
    launch per trajectory and step. False: one stream of random numbers for all."""
    probe_tolerance: float | None = Field(None, gt=0)
    """Maximum mean difference, in nats per token, between the engine's log-probs of a fixed text and those of the
    checkpoint's weights in transformers, checked after every weight update; the 95th percentile may be three times
    that. None: 0.001 in float32, 0.08 in 16-bit dtypes, about twice what rounding makes there."""

    @property
    def copies(self) -> tuple[int, int]:
        """Number of copies of the model, and number of GPUs of each."""
        return self.num_engines, self.tensor_parallel_size

    def python(self) -> str:
        """Return the interpreter that has vLLM; without STARPO_VLLM_PYTHON, `sys.executable` if it has it.

        Raises:
            MissingPackageError: If there is none.
        """
        configured = Runtime.current().vllm_python
        if configured is None and find_spec("vllm") is not None:
            return sys.executable
        python = Path(configured) if configured is not None else _MADE
        if not python.is_file():
            where = "STARPO_VLLM_PYTHON" if configured is not None else "the interpreter that `make vllm` makes"
            raise MissingPackageError(
                f"engine 'vllm' needs vLLM, and there is no '{python}' ({where}). Run `make vllm` in the repository, "
                "or set STARPO_VLLM_PYTHON to the interpreter of an environment that has vLLM and this package "
                "(docs/vllm.md)"
            )
        return str(python)

    def arguments(self, max_context_tokens: int) -> dict[str, Any]:
        """Return these settings, and the limit for which vLLM sizes its cache."""
        return {**super().arguments(max_context_tokens), "max_context_tokens": max_context_tokens}

    def reserved(self, weights: float, context: float, gpu: float | None) -> tuple[float, str]:
        """Return the memory of weights and cache; vLLM refuses to start where one context does not fit."""
        is_float32 = gpu is None or self.dtype == "float32"
        part = (1 if is_float32 else 0.5) / self.tensor_parallel_size
        if gpu is None or self.kv_cache_gib is not None:
            cache, dtype = self.kv_cache_gib or 1.0, "float32" if is_float32 else "16 bits"
            size, how = part * weights + cache * 2**30, f"weights in {dtype} and {cache:g} GiB of cache"
        else:
            size, how = self.gpu_memory_utilization * gpu, f"{self.gpu_memory_utilization:g} of the GPU"
        return max(size, part * (weights + context)), how
