"""The in-process rollout engine: PyTorch on the CPU or one GPU.

checkpoint folder -> TorchEngine -> TorchSession (one per shard) -> responses
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import torch

from starpo.ragen.agents.policy.folder import check_folder
from starpo.ragen.agents.policy.load import load_policy
from starpo.ragen.agents.rollout.torch.decoder import Decoder
from starpo.ragen.agents.rollout.torch.fused_decoder import FusedDecoder
from starpo.ragen.agents.rollout.torch.session import TorchSession
from starpo.ragen.agents.rollout.weights import read_module_weights
from starpo.ragen.config.device import Device
from starpo.ragen.config.rollout import SamplingConfig
from starpo.ragen.core.errors import EngineError


class TorchEngine:
    """Implements `engine.RolloutEngine`. Sessions share the weights and may run in separate threads.

    Two cores are used best by two sessions in two threads with `num_threads=1`: a small model's matrices are too small
    to be split.

    Attributes:
        is_deterministic: Whether the same shard gives the same bytes for one machine type and thread count: true on the
            CPU, and on a GPU unless STARPO_SHOULD_REPEAT is off.
        is_continuous: False: its sessions answer a shard's trajectories together.
    """

    is_continuous = False

    def __init__(
        self,
        num_threads: int | None = None,
        *,
        device: Literal["cpu", "cuda"] | None = None,
        dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto",
    ) -> None:
        """Configure device and precision; `load` does the work.

        Args:
            num_threads: torch's threads within one `generate` call, set with `torch.set_num_threads` in the calling
                thread during the call and restored afterwards. None: torch's setting is unchanged.
            device: None: the GPU if there is one, otherwise the CPU.
            dtype: Type of weights and arithmetic. 'auto': float32 on the CPU, the checkpoint's own on a GPU.
        """
        self._num_threads = num_threads
        here = Device.here()
        self._device = torch.device(device or here.kind)
        is_on_cpu = self._device.type == "cpu"
        if dtype == "auto" and is_on_cpu:
            dtype = "float32"
        self._dtype: torch.dtype | None = None if dtype == "auto" else getattr(torch, dtype)
        self.is_deterministic = is_on_cpu or here.is_repeatable
        self._decoder: Decoder | None = None
        self._config_text: str | None = None
        self._weight_names: frozenset[str] = frozenset()
        self._checkpoint_key: str | None = None
        self._lock = threading.Lock()
        self._num_running = 0
        self._threads_before = 0

    def load(self, folder: str, checkpoint_key: str) -> None:
        """Load this checkpoint; a no-op if it is already loaded.

        Weights of the same architecture are copied over the current ones. Existing sessions become invalid.

        Raises:
            PolicyError: If the folder is not a policy: config, weights or tokenizer missing or damaged.
            EngineError: If a session is generating.
        """
        with self._lock, torch.inference_mode():
            if checkpoint_key == self._checkpoint_key:
                return
            if self._num_running:
                raise EngineError(
                    f"checkpoint '{checkpoint_key}' cannot be loaded while {self._num_running} sessions generate"
                )
            self._checkpoint_key = None  # if anything fails below, the weights may be partially updated
            check_folder(folder)
            config_text = (Path(folder) / "config.json").read_text(encoding="utf-8")
            if self._decoder is None or config_text != self._config_text:
                self._decoder = self._new_decoder(folder)
                self._config_text = config_text
            # The first checkpoint of a process too: adapters are merged before rounding to the engine's dtype.
            self._decoder.load_weights(read_module_weights(folder, self._weight_names))
            self._checkpoint_key = checkpoint_key

    def session(self, sampling: SamplingConfig, stop_token_ids: Sequence[int]) -> TorchSession:
        """Start a session for one shard. Sessions may be used concurrently, one thread each.

        Raises:
            EngineError: If no checkpoint is loaded.
        """
        decoder = self._decoder
        if decoder is None or self._checkpoint_key is None:
            raise EngineError("no checkpoint is loaded; call load(folder, checkpoint_key) before session()")
        checkpoint_key = self._checkpoint_key
        return TorchSession(decoder, sampling, stop_token_ids, lambda: self._running(checkpoint_key))

    def _new_decoder(self, folder: str) -> Decoder:
        """Make a decoder of this architecture; its weights are yet to be loaded."""
        self._decoder = None  # free the old model first: two may not fit into memory
        model, _ = load_policy(folder, self._dtype or "auto", should_merge=False)
        dtype = self._dtype or model.dtype
        self._weight_names = frozenset(name for name, _ in model.named_parameters())
        if not FusedDecoder.is_supported(model.config):
            from starpo.ragen.agents.rollout.torch.module_decoder import ModuleDecoder

            return ModuleDecoder(model, self._device, dtype)
        return FusedDecoder(model.config, self._device, dtype)

    @contextmanager
    def _running(self, checkpoint_key: str) -> Iterator[None]:
        """Hold the weights and the number of threads constant during one call of `generate`."""
        with self._lock:
            if checkpoint_key != self._checkpoint_key:
                raise EngineError(
                    f"this session began at checkpoint '{checkpoint_key}' and the engine is at "
                    f"'{self._checkpoint_key}'; begin a new session"
                )
            if self._num_running == 0:
                self._threads_before = torch.get_num_threads()
            self._num_running += 1
        try:
            if self._num_threads is not None:
                torch.set_num_threads(self._num_threads)
            yield
        finally:
            with self._lock:
                self._num_running -= 1
                if self._num_threads is not None:
                    torch.set_num_threads(self._threads_before)
