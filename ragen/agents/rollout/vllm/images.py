"""Images of prompts for vLLM, prepared here: the pixels and placeholders that the learner reads, to the last bit.

    token ids, images -> PreparedImages -> vLLM's input, with placeholders where they are

vLLM would prepare images itself, with another library than the learner, and would look for a placeholder for each image
in the prompt: one that the policy sampled in an earlier turn would be taken for an image.
"""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from starpo.ragen.agents.policy.folder import read_config
from starpo.ragen.agents.vision.families import family_of
from starpo.ragen.agents.vision.image import Image, PlacedImage

_NUM_KEPT = 64
"""Images whose pixels are kept, of those prepared last: trajectories of a group begin with the same one."""


class PreparedImages:
    """Prepares images for one vLLM."""

    def __init__(self, llm: Any) -> None:
        """Load what prepares images for the model of a vLLM."""
        self._model = llm.model_config
        folder = Path(self._model.model)
        self._family = family_of(read_config(folder))
        assert self._family is not None, "the policy sees no images"
        self._processor = self._family.processor(folder)
        self._fields = llm.renderer.get_mm_processor()._get_mm_fields_config
        self._item = lru_cache(_NUM_KEPT)(self._prepare)

    def prompt(self, token_ids: Sequence[int], images: Sequence[PlacedImage]) -> Any:
        """Return a prompt with images as vLLM's engine reads it after its own preparation."""
        from vllm.inputs import mm_input
        from vllm.multimodal.inputs import MultiModalKwargsItems, PlaceholderRange

        items = MultiModalKwargsItems({"image": [self._item(place.image) for place in images]})
        digests = {"image": [place.image.digest for place in images]}
        places = {"image": [PlaceholderRange(place.position, place.num_tokens) for place in images]}
        return mm_input(list(token_ids), items, digests, places)

    def _prepare(self, image: Image) -> Any:
        from transformers import BatchFeature
        from vllm.multimodal.inputs import MultiModalKwargsItems

        assert self._family is not None
        pixels = self._family.pixels(self._processor, self._model.hf_config, image)
        pixels = {
            name: values.to(self._model.dtype) if values.is_floating_point() else values
            for name, values in pixels.items()
        }
        features = BatchFeature(pixels)
        (item,) = MultiModalKwargsItems.from_hf_inputs(features, self._fields(features, {}))["image"]
        return item
