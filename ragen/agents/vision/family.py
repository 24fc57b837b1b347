"""`Family`: what differs between models that see; and their image processors."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import transformers
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from starpo.ragen.agents.vision.image import Image
from starpo.ragen.agents.vision.image_tokens import ImageTokens
from starpo.ragen.agents.vision.positions import Grid
from starpo.ragen.core.errors import PolicyError, named_line


class Family(Protocol):
    """A family of models; without state."""

    def processor(self, folder: Path) -> Any:
        """Load what prepares images from a policy's folder; None if nothing is needed.

        Raises:
            PolicyError: If it is missing or damaged.
        """

    def image_tokens(
        self, config: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase, processor: Any
    ) -> ImageTokens:
        """Return the tokens of an image, for a model's `config.json`.

        Raises:
            PolicyError: If configuration and tokenizer do not say them.
        """

    def grid(self, processor: Any, image: Image) -> Grid | None:
        """Return rows and columns of an image's tokens; None if their positions are those of a plain sequence."""

    def num_deep(self, config: Any) -> int:
        """Return the number of layers that add features of their own for every placeholder."""

    def pixels(self, processor: Any, config: Any, image: Image) -> dict[str, Tensor]:
        """Return what vLLM reads of an image, as it calls its parts.

        Args:
            processor: What prepares images.
            config: The model's configuration.
            image: The image.

        Raises:
            PolicyError: If vLLM does not know this family.
        """

    def features(self, backbone: Any, images: Sequence[Image]) -> Tensor:
        """Compute the features of images: the embedding of each placeholder, in the order of the images, followed by
        its features for the layers that add some, [F, (1 + num_deep) * H]."""


def load_processor(name: str, folder: Path) -> Any:
    """Load an image processor of transformers, in its form without torchvision.

    Raises:
        PolicyError: If the folder has none.
    """
    try:
        return getattr(transformers, name).from_pretrained(folder, local_files_only=True)
    except Exception as error:  # transformers raises errors of many types
        raise PolicyError(
            f"the image processor in '{folder}' cannot be loaded: {named_line(error)}; it needs the model's own "
            "preprocessor_config.json"
        ) from error
