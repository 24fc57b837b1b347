"""Settings of engine 'vllm'."""

from typing import Literal

from pydantic import Field

from starpo.ragen.core.settings import Settings


class VLLMEngineConfig(Settings):
    """How vLLM holds the model and its cache."""

    num_engines: int = Field(1, ge=1, le=64)
    """Copies of the model, each in a process of its own that plays its share of the groups. More than one needs vLLM in
    an environment of its own."""
    tensor_parallel_size: int = Field(1, ge=1, le=64)
    """Devices over which one copy of the model is cut up."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Of weights, cache and arithmetic. 'auto': float32 on the CPU, bfloat16 on a GPU."""
    gpu_memory_utilization: float = Field(0.5, gt=0, le=1)
    """Share of a GPU's memory for weights and cache together; what is left is the learner's. No effect where
    `kv_cache_gib` is given, and none on the CPU."""
    kv_cache_gib: float | None = Field(None, gt=0)
    """Memory of the cache, GiB a device. None: what `gpu_memory_utilization` leaves; on the CPU 1."""
    max_num_seqs: int = Field(256, ge=1, le=65536)
    """Trajectories that are decoded together; more wait for a place."""
    max_num_batched_tokens: int | None = Field(None, ge=32)
    """Tokens a step, prompts and responses together. None: vLLM's choice."""
    enforce_eager: bool = False
    """Do without CUDA graphs: a faster start, slower steps. Always so on the CPU."""
    max_lora_rank: int | None = Field(None, ge=1, le=512)
    """Serve a checkpoint's LoRA adapter beside the weights, which then stay where they are, up to this rank. None:
    adapters are merged into the weights at each update: a slower update, faster steps."""
    should_seed_requests: bool = True
    """A seed for each response, so that the random numbers of a trajectory are its own. On a GPU that costs a launch a
    trajectory and step. false: one stream of random numbers for all."""
    probe_tolerance: float | None = Field(None, gt=0)
    """Largest difference, nats a token, between the engine's log-probs of a fixed prompt and those of the checkpoint's
    weights in transformers, after every update of the weights. None: 0.001 in float32, 0.2 in 16 bits."""
