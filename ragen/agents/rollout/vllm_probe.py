"""Check after every weight update that the engine's weights are the checkpoint's.

    checkpoint folder -> transformers, on the CPU -> log-probs of a fixed prompt <-> the engine's

vLLM's weights are packed, sharded and fused; comparing outputs is the only check that covers all of this.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

from starpo.ragen.agents.rollout.weights import read_module_weights
from starpo.ragen.core.errors import EngineError, PolicyError

NUM_PROBE_TOKENS = 32
_NO_SHAPE = ("architectures", "dtype", "transformers_version", "_name_or_path", "use_cache")


def architecture_of(config: PreTrainedConfig) -> str:
    """Serialise a model's configuration, without fields that do not affect its shape."""
    values = config.to_diff_dict()
    return json.dumps({name: values[name] for name in sorted(values) if name not in _NO_SHAPE}, default=str)


def probe_ids(folder: str) -> list[int]:
    """Return the fixed prompt: tokens spread evenly over the policy's vocabulary. [NUM_PROBE_TOKENS]"""
    vocabulary = int(json.loads((Path(folder) / "config.json").read_text())["vocab_size"])
    return [number * (vocabulary - 1) // (NUM_PROBE_TOKENS - 1) for number in range(NUM_PROBE_TOKENS)]


class Reference:
    """A policy in transformers, in float32 on the CPU: 4 bytes per parameter, kept between checkpoints."""

    def __init__(self) -> None:
        """Create the reference without a model; `logprobs` loads it."""
        self._model: PreTrainedModel | None = None
        self._architecture = ""

    @torch.inference_mode()
    def logprobs(self, folder: str, ids: Sequence[int]) -> list[float]:
        """Compute the log-prob of each token but the first, given its prefix, at temperature 1; nats. [num_tokens - 1]

        Raises:
            PolicyError: If the folder is not a policy.
        """
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        if self._model is None or architecture_of(config) != self._architecture:
            with torch.random.fork_rng(devices=[]):
                self._model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
            self._architecture = architecture_of(config)
        # An output layer that is tied to the embeddings may be missing: it is not a separate parameter.
        weights = read_module_weights(folder, {name for name, _ in self._model.named_parameters()})
        strangers = self._model.load_state_dict(weights, strict=False).unexpected_keys
        if strangers:
            raise PolicyError(
                f"'{folder}': {len(strangers)} weights are unknown to its configuration, such as {min(strangers)}; "
                "config and weights do not belong together. Save the model there again, with model.save_pretrained"
            )
        tokens_T = torch.tensor(ids)
        logprobs_TV = self._model(input_ids=tokens_T[None]).logits[0].float().log_softmax(-1)
        gaps: list[float] = logprobs_TV[:-1].gather(-1, tokens_T[1:, None])[:, 0].tolist()
        return gaps


def compare(engine: Sequence[float], reference: Sequence[float], tolerance: float, checkpoint_key: str) -> float:
    """Return the largest difference of log-probs, in nats per token.

    Raises:
        EngineError: If it exceeds the tolerance or is NaN.
    """
    assert len(engine) == len(reference)
    gap = float(np.abs(np.subtract(engine, reference)).max())  # NaN propagates through max
    if not gap <= tolerance:
        raise EngineError(
            f"after its weights were updated to checkpoint '{checkpoint_key}' the engine gives a fixed prompt "
            f"log-probs that differ from the checkpoint's own by up to {gap:.2g} nats per token; at most {tolerance:g} "
            "is allowed (rollout.vllm.probe_tolerance). It would sample from another policy than the one that is "
            "trained, so the run stops. Where that is no more than rounding (rollout.vllm.dtype), raise the tolerance"
        )
    return gap
