"""Settings of engine 'vllm'."""

from typing import Literal

from pydantic import Field

from starpo.ragen.core.settings import Settings


class VLLMEngineConfig(Settings):
    """How vLLM holds the model and its KV cache."""

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
