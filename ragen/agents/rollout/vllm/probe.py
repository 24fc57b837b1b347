"""Check after every weight update that the engine's weights are the checkpoint's.

    checkpoint folder -> transformers, on the CPU -> log-probs of a fixed text <-> the engine's

vLLM's weights are packed, sharded and fused; comparing outputs is the only check that covers all of this. A policy that
sees images reads the text after a fixed image, for the weights of its encoder.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel

from starpo.ragen.agents.policy.folder import read_config
from starpo.ragen.agents.policy.load import load_tokenizer, model_class
from starpo.ragen.agents.rollout.weights import read_module_weights
from starpo.ragen.agents.vision import tiny_vision  # noqa: F401  (registers the architecture with transformers)
from starpo.ragen.agents.vision.embeddings import model_inputs
from starpo.ragen.agents.vision.families import family_of
from starpo.ragen.agents.vision.image import Image, PlacedImage
from starpo.ragen.agents.vision.image_table import ImageTable
from starpo.ragen.core.errors import EngineError, PolicyError

NUM_PROBE_TOKENS = 128
TAIL = 3.0
"""Limit of the 95th percentile in means; measured with bfloat16 on healthy weights: 2.5 to 2.9."""
MOVED = 1e-4
"""Mean difference of a text's log-probs under two checkpoints, nats, above which an engine's cannot stay the same."""
_TEXT = (
    "The harbour lies on the north side of the island. In the morning the ferry brings letters, bread and a few "
    "visitors, and in the evening it takes them back. A path of about two miles leads from the pier to the lighthouse; "
    "whoever walks it should carry water, because there is no shade. The keeper writes down the wind, the height of "
    "the waves and the names of passing ships, and at the end of each month she sends her notes to the office in town. "
    "Nobody there has read them for years, but the numbers are exact: 14 knots from the west, waves of 3 feet, two "
    "ships and one sail."
)
"""Ordinary text: on tokens that no text holds, log-probs are far from 0, and rounding weighs more."""
_IMAGE = Image(np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8))
_NO_SHAPE = ("architectures", "dtype", "transformers_version", "_name_or_path", "use_cache")


def architecture_of(config: PreTrainedConfig) -> str:
    """Serialise a model's configuration, without fields that do not affect its shape."""
    values = config.to_diff_dict()
    return json.dumps({name: values[name] for name in sorted(values) if name not in _NO_SHAPE}, default=str)


@dataclass(frozen=True)
class Probe:
    """A fixed prompt in a policy's own tokens.

    Attributes:
        ids: Tokens; those of the text are at most NUM_PROBE_TOKENS, after those of the image if there is one.
        images: The image, if the policy sees images.
    """

    ids: list[int]
    images: tuple[PlacedImage, ...] = ()

    @classmethod
    def of(cls, folder: str, max_tokens: int) -> "Probe":
        """Build the prompt for the policy in a folder.

        Raises:
            PolicyError: If the folder has no readable tokenizer.
        """
        tokenizer = load_tokenizer(folder)
        ids = list(tokenizer.encode(_TEXT, add_special_tokens=False))[:NUM_PROBE_TOKENS]
        tokens = tokenizer.image_tokens
        before = [] if tokens is None else tokens.ids(_IMAGE)
        if not before or len(before) >= max_tokens:
            return cls(ids[:max_tokens])
        placed = PlacedImage(len(tokens.before_ids), tokens.num_tokens(_IMAGE), _IMAGE)
        return cls([*before, *ids][:max_tokens], (placed,))

    @property
    def is_text(self) -> list[bool]:
        """Whether each token but the first is text; placeholders are not, whose log-probs no training moves."""
        shown = {place.position + number for place in self.images for number in range(place.num_tokens)}
        return [number not in shown for number in range(1, len(self.ids))]


class ProbeReference:
    """A policy in transformers, in float32 on the CPU: 4 bytes per parameter, kept between checkpoints."""

    def __init__(self) -> None:
        """Create the reference without a model; `logprobs` loads it."""
        self._model: PreTrainedModel | None = None
        self._architecture = ""

    @torch.inference_mode()
    def logprobs(self, folder: str, probe: Probe) -> list[float]:
        """Compute the log-prob of each text token but the first, given its prefix, at temperature 1; nats.

        Raises:
            PolicyError: If the folder is not a policy.
        """
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        if self._model is None or architecture_of(config) != self._architecture:
            with torch.random.fork_rng(devices=[]):
                raw_config = read_config(Path(folder))
                self._model = model_class(raw_config).from_config(config, dtype=torch.float32).eval()
                if family := family_of(raw_config):
                    self._model.base_model.image_processor = family.processor(Path(folder))
            self._architecture = architecture_of(config)
        # An output layer that is tied to the embeddings may be missing: it is not a separate parameter.
        weights = read_module_weights(folder, {name for name, _ in self._model.named_parameters()})
        strangers = self._model.load_state_dict(weights, strict=False).unexpected_keys
        if strangers:
            raise PolicyError(
                f"'{folder}': {len(strangers)} weights are unknown to its configuration, such as {min(strangers)}; "
                "config and weights do not belong together. Save the model there again, with model.save_pretrained"
            )
        tokens_T, table = torch.tensor(probe.ids), ImageTable()
        seen_1T = torch.tensor([table.put(probe.ids, probe.images)])
        inputs = model_inputs(self._model.base_model, seen_1T, table.images)
        logprobs_TV = self._model(**inputs).logits[0].float().log_softmax(-1)
        found_T = logprobs_TV[:-1].gather(-1, tokens_T[1:, None])[:, 0]
        logprobs: list[float] = found_T[torch.tensor(probe.is_text)].tolist()
        return logprobs


def compare(engine: Sequence[float], reference: Sequence[float], tolerance: float, checkpoint_key: str) -> float:
    """Return the mean absolute difference of log-probs, in nats per token.

    The largest difference of a text says little: rounding alone reaches several times the mean at rare tokens. A layer
    that is not the checkpoint's moves the whole distribution.

    Args:
        engine: Log-probs of the engine. [num_tokens]
        reference: Those of the checkpoint. [num_tokens]
        tolerance: Largest mean; the 95th percentile may be TAIL times that.
        checkpoint_key: For the message.

    Raises:
        EngineError: If the mean or the 95th percentile is above its limit, or a difference is NaN.
    """
    assert len(engine) == len(reference)
    gaps = np.abs(np.subtract(engine, reference))
    mean, tail = float(gaps.mean()), float(np.quantile(gaps, 0.95))  # NaN propagates through both
    if not (mean <= tolerance and tail <= TAIL * tolerance):
        raise EngineError(
            f"after its weights were updated to checkpoint '{checkpoint_key}' the engine gives a fixed text log-probs "
            f"that differ from the checkpoint's own by {mean:.2g} nats per token on average, {tail:.2g} at the 95th "
            f"percentile; at most {tolerance:g} and {TAIL * tolerance:g} are allowed (rollout.vllm.probe_tolerance). "
            "It would sample from another policy than the one that is trained, so the run stops. Where that is no more "
            "than rounding (rollout.vllm.dtype), raise the tolerance"
        )
    return mean


Probed = tuple[Sequence[float], Sequence[float]]
"""Log-probs of a probe: the engine's, and the checkpoint's own."""


def check_moved(now: Probed, before: Probed | None, checkpoint_key: str) -> None:
    """Check that an engine has moved with its checkpoint.

    A step moves log-probs by less than a tolerance that allows for bfloat16, so an engine that keeps an older adapter
    or older weights would pass `compare` for many updates.

    Args:
        now: Of this checkpoint.
        before: Of the one that was loaded before it; None if there was none.
        checkpoint_key: For the message.

    Raises:
        EngineError: If the engine's log-probs are to the bit those of the checkpoint before, whose own were others.
    """
    if before is None or list(now[0]) != list(before[0]):
        return
    moved = float(np.abs(np.subtract(now[1], before[1])).mean())
    if moved > MOVED:
        raise EngineError(
            f"after its weights were updated to checkpoint '{checkpoint_key}' the engine gives a fixed text the very "
            f"log-probs as before, while the checkpoint's own have moved by {moved:.2g} nats per token: it keeps the "
            "weights or the adapter of an earlier checkpoint and would sample from that policy, so the run stops. Run "
            "again; if it happens again, set rollout.vllm.max_lora_rank = None for whole weights"
        )
