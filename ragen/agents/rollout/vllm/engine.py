"""The rollout engine on vLLM: prefix caching, continuous batching, weights updated in place.

checkpoint folder -> VLLMEngine (one vLLM, in this process) -> VLLMSession (one per shard) -> responses

vLLM is imported by the first `load`, so that the engine can be configured and inspected without it.
"""

import os
import threading
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, PreTrainedConfig

from starpo.ragen.agents.policy.adapter import base_of, read_shape
from starpo.ragen.agents.policy.folder import check_folder, read_config
from starpo.ragen.agents.rollout.vllm.images import PreparedImages
from starpo.ragen.agents.rollout.vllm.probe import Probe, Probed, ProbeReference, architecture_of, check_moved, compare
from starpo.ragen.agents.rollout.vllm.session import InFlight, VLLMSession
from starpo.ragen.agents.vision import tiny_vision  # noqa: F401  (registers the architecture with transformers)
from starpo.ragen.agents.vision.families import family_of
from starpo.ragen.agents.vision.image import PlacedImage
from starpo.ragen.config.device import Device
from starpo.ragen.config.rollout import SamplingConfig
from starpo.ragen.config.vllm_engine import VLLMEngineConfig
from starpo.ragen.core.errors import EngineError, MissingPackageError, PolicyError, StarPOError

_GIB = 2**30
_CPU_CACHE_GIB = 1.0
_CPU_BLOCK = 32  # the smallest that vLLM's CPU attention takes; its default of 128 is longer than many a prompt
_CPU_BATCHED_TOKENS = 16_384
_ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # steps are executed in this process, one by one
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # workers and learner share the cores; the operating system schedules them
}


class VLLMEngine:
    """Implements `ragen.agents.rollout.engine.RolloutEngine`. Its sessions stream, and may be used concurrently.

    Attributes:
        is_deterministic: False: which trajectories share a step, and thus the rounding, depends on timing.
        is_continuous: True.
        update_s: Seconds of the last weight update, including the cache reset, without the probe.
        probe_gap: Mean difference found by the last probe, in nats per token.
    """

    is_deterministic = False
    is_continuous = True

    def __init__(self, num_threads: int | None = None, *, max_context_tokens: int = 4096, **options: Any) -> None:
        """Configure the engine; `load` does the work.

        Args:
            num_threads: On the CPU, torch's threads in this process. None: torch's setting is unchanged.
            max_context_tokens: Limit of prompt and response together; a policy with a shorter context keeps its own.
            options: Fields of `VLLMEngineConfig`.
        """
        self._num_threads = num_threads
        self._max_context_tokens = max_context_tokens
        self._config = VLLMEngineConfig(**options)
        self._lock = threading.RLock()
        self._llm: Any = None
        self._architecture = ""
        self._weights_key: str | None = None
        self._checkpoint_key: str | None = None
        self._adapter: Any = None
        self._images: PreparedImages | None = None
        self._num_adapters = 0
        self._in_flight: dict[str, InFlight] = {}
        self._names = count()
        self._reference = ProbeReference()
        self._probed: Probed | None = None
        self.update_s = 0.0
        self.probe_gap = 0.0

    def load(self, folder: str, checkpoint_key: str) -> None:
        """Load this checkpoint; a no-op if it is already loaded.

        Weights of the same architecture replace the current ones, the prefix cache is reset, and a probe compares
        log-probs with those of the checkpoint.

        Raises:
            PolicyError: If the folder is not a policy: config, weights or tokenizer missing or damaged.
            EngineError: If responses are in flight, vLLM cannot load the policy, or the probe fails.
            MissingPackageError: If vLLM is not installed.
        """
        with self._lock:
            if checkpoint_key == self._checkpoint_key:
                return
            if self._in_flight:
                raise EngineError(
                    f"checkpoint '{checkpoint_key}' cannot be loaded while {len(self._in_flight)} responses are in "
                    "flight"
                )
            self._checkpoint_key = None  # if anything fails below, the weights may be partially updated
            check_folder(folder)
            architecture = architecture_of(_read_config(folder))
            try:
                if architecture != self._architecture:
                    self._stop()
                if self._llm is None:
                    self._llm = self._start(folder)
                    self._architecture = architecture
                started = time.perf_counter()
                self._update(folder, checkpoint_key)
                self.update_s = time.perf_counter() - started
            except StarPOError:
                raise
            except Exception as error:
                raise EngineError(f"vLLM cannot hold the policy '{folder}': {_reason(error)}") from error
            probe = Probe.of(folder, self._llm.model_config.max_model_len - 1)
            weights_key, self._weights_key = self._weights_key, None
            probed = self._prompt_logprobs(probe), self._reference.logprobs(folder, probe)
            self.probe_gap = compare(*probed, self._tolerance, checkpoint_key)
            check_moved(probed, self._probed, checkpoint_key)
            self._probed = probed
            self._checkpoint_key, self._weights_key = checkpoint_key, weights_key

    def session(self, sampling: SamplingConfig, stop_token_ids: Sequence[int]) -> VLLMSession:
        """Start a session for one shard.

        Raises:
            EngineError: If no checkpoint is loaded.
        """
        if self._checkpoint_key is None:
            raise EngineError("no checkpoint is loaded; call load(folder, checkpoint_key) before session()")
        return VLLMSession(self, sampling, stop_token_ids, self._checkpoint_key)

    @property
    def should_seed_requests(self) -> bool:
        """Whether each response has its own seed."""
        return self._config.should_seed_requests

    @property
    def vocabulary_size(self) -> int:
        """Size of the policy's vocabulary."""
        return int(self._llm.model_config.get_vocab_size())

    @property
    def max_context_tokens(self) -> int:
        """Limit of prompt and response together."""
        return int(self._llm.model_config.max_model_len)

    def add(self, entry: InFlight, params: Any) -> None:
        """Put a request in flight, for its session.

        Raises:
            EngineError: If the engine has loaded a checkpoint other than the session's.
        """
        with self._lock:
            if entry.session.checkpoint_key != self._checkpoint_key:
                raise EngineError(
                    f"this session began at checkpoint '{entry.session.checkpoint_key}' and the engine is at "
                    f"'{self._checkpoint_key}'; begin a new session"
                )
            name = str(next(self._names))
            self._add(name, entry.request.prompt_ids, params, entry.request.images)
            self._in_flight[name] = entry

    def advance(self) -> None:
        """Execute one step for all requests in flight, of all sessions; finished responses go to their sessions.

        Raises:
            EngineError: If vLLM fails; the next `load` restarts it.
        """
        with self._lock:
            for output in self._step():
                if output.request_id in self._in_flight:
                    entry = self._in_flight.pop(output.request_id)
                    entry.session.take(entry, output)

    def abandon(self, session: VLLMSession) -> None:
        """Abort a session's requests in flight."""
        with self._lock:
            names = [name for name, entry in self._in_flight.items() if entry.session is session]
            for name in names:
                del self._in_flight[name]
            if names and self._llm is not None:
                self._llm.abort_request(names)

    def _start(self, folder: str) -> Any:
        """Start vLLM for policies of this architecture; weights are not loaded yet."""
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        is_cpu = not Device.here().is_gpu
        if is_cpu:
            # vLLM compiles individual functions at first use, which takes half a minute of one core each.
            torch.compiler.set_stance("force_eager")
            if self._num_threads is not None:
                torch.set_num_threads(self._num_threads)
        try:
            from vllm import EngineArgs
            from vllm.v1.engine.llm_engine import LLMEngine
        except ImportError as error:
            raise MissingPackageError(
                f"engine 'vllm' needs vLLM, which this environment does not have ({error}): make one that has it with "
                "`make vllm`, or set STARPO_VLLM_PYTHON to the interpreter of one"
            ) from error
        config = self._config
        longest = getattr(_read_config(folder), "max_position_embeddings", self._max_context_tokens)
        max_model_len = min(self._max_context_tokens, longest)
        cache_gib = config.kv_cache_gib or (_CPU_CACHE_GIB if is_cpu else None)
        options: dict[str, Any] = {
            "max_num_batched_tokens": config.max_num_batched_tokens,
            "kv_cache_memory_bytes": None if cache_gib is None else int(cache_gib * _GIB),
            "gpu_memory_utilization": config.gpu_memory_utilization,
        }
        if is_cpu:
            # A seeded request whose prompt is split into chunks crashes on the CPU, so prompts are not split there.
            batched = max(config.max_num_batched_tokens or _CPU_BATCHED_TOKENS, max_model_len, config.max_num_seqs)
            options |= {"enable_chunked_prefill": False, "max_num_batched_tokens": batched, "block_size": _CPU_BLOCK}
        if family_of(read_config(Path(folder))) is not None:
            # Images come prepared, with the tokens that stand for them (`vllm/images.py`).
            options |= {"limit_mm_per_prompt": {"video": 0}, "mm_processor_cache_gb": 0, "skip_mm_profiling": is_cpu}
            if "mm_device_do_normalize" in EngineArgs.__dataclass_fields__:
                options["mm_device_do_normalize"] = False  # they are normalised
        else:
            options["skip_tokenizer_init"] = True
        if config.max_lora_rank is not None:
            options |= {"enable_lora": True, "max_lora_rank": _served_rank(config.max_lora_rank), "max_loras": 1}
        return LLMEngine.from_engine_args(
            EngineArgs(
                model=folder,
                load_format="dummy",  # vLLM would read every safetensors in the folder, the optimiser's too
                worker_extension_cls="starpo.ragen.agents.rollout.vllm.weights.CheckpointWeights",
                dtype=self._dtype,
                max_model_len=max_model_len,
                max_num_seqs=config.max_num_seqs,
                tensor_parallel_size=config.tensor_parallel_size,
                enforce_eager=is_cpu or config.enforce_eager,
                enable_prefix_caching=True,
                logprobs_mode="processed_logprobs",
                generation_config="vllm",
                disable_log_stats=True,
                **options,
            )
        )

    def _stop(self) -> None:
        """Shut down vLLM and free its memory, since two models may not fit."""
        if self._llm is None:
            return
        from vllm.distributed import cleanup_dist_env_and_memory

        self._llm.engine_core.shutdown()
        self._llm, self._weights_key, self._adapter, self._images, self._probed = None, None, None, None, None
        cleanup_dist_env_and_memory()

    def _update(self, folder: str, checkpoint_key: str) -> None:
        shape = read_shape(folder)
        is_served = shape is not None and self._config.max_lora_rank is not None
        weights_key = (base_of(folder) or checkpoint_key) if is_served else checkpoint_key
        if weights_key != self._weights_key:
            self._weights_key = None
            self._llm.collective_rpc("load_checkpoint_weights", args=(folder, not is_served))
            self._weights_key = weights_key
        if self._adapter is not None:
            self._llm.remove_lora(self._adapter.lora_int_id)
            self._adapter = None
        if is_served:
            self._adapter = self._add_adapter(folder, shape)
        self._llm.reset_prefix_cache()
        self._llm.reset_encoder_cache()

    def _add_adapter(self, folder: str, shape: Any) -> Any:
        from vllm.lora.request import LoRARequest

        if shape.rank > (self._config.max_lora_rank or 0):
            raise EngineError(
                f"the adapter in '{folder}' has rank {shape.rank}, above rollout.vllm.max_lora_rank = "
                f"{self._config.max_lora_rank}"
            )
        self._num_adapters += 1  # vLLM identifies an adapter by its number and would treat a known number as unchanged
        adapter = LoRARequest(f"policy-{self._num_adapters}", self._num_adapters, folder)
        self._llm.add_lora(adapter)
        return adapter

    def _prompt_logprobs(self, probe: Probe) -> list[float]:
        from vllm import SamplingParams

        params = SamplingParams(max_tokens=1, prompt_logprobs=0, detokenize=False)
        self._add("probe", probe.ids, params, probe.images)
        while True:
            for output in self._step():
                scored = zip(probe.ids[1:], output.prompt_logprobs[1:], probe.is_text, strict=True)
                return [step[token].logprob for token, step, is_text in scored if is_text]

    def _step(self) -> list[Any]:
        """Execute one step; return the outputs that finished with it."""
        try:
            return [output for output in self._llm.step() if output.finished]
        except Exception as error:
            self._checkpoint_key, self._in_flight = None, {}
            self._stop()
            raise EngineError(f"vLLM failed while generating: {_reason(error)}") from error

    def _add(self, name: str, ids: Sequence[int], params: Any, images: Sequence[PlacedImage]) -> None:
        prompt: Any = {"prompt_token_ids": list(ids)}
        if images:
            if self._images is None:
                self._images = PreparedImages(self._llm)
            prompt = self._images.prompt(ids, images)
        self._llm.add_request(name, prompt, params, lora_request=self._adapter)

    @property
    def _dtype(self) -> str:
        if self._config.dtype != "auto":
            return self._config.dtype
        return "bfloat16" if Device.here().is_gpu else "float32"

    @property
    def _tolerance(self) -> float:
        return self._config.probe_tolerance or (1e-3 if self._dtype == "float32" else 0.08)


def _read_config(folder: str) -> PreTrainedConfig:
    try:
        return AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        raise PolicyError(f"the configuration in '{folder}' cannot be read: {_reason(error)}") from error


def _served_rank(rank: int) -> int:
    """Round a rank up to one that vLLM has kernels for."""
    return next(known for known in (8, 16, 32, 64, 128, 256, 320, 512) if known >= rank)


def _reason(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"
