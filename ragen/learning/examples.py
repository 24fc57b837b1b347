"""Examples of supervised learning: contexts whose responses are to be imitated.

demonstrated turns, or stored ones -> [Example] -> Batch -> micro-batches (`learners.batches`)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from starpo.ragen.agents.vision.image_table import ImageTable


@dataclass(frozen=True)
class Example:
    """Consecutive turns that the policy sees as one context, up to the last response token.

    Attributes:
        token_ids: Prompts and responses in order, images with ids of their own (`ImageTable`). int64 [T]
        response_mask: Whether a token belongs to a response; only those have a loss. bool [T]
    """

    token_ids: np.ndarray
    response_mask: np.ndarray


class ImitationData(Protocol):
    """What is imitated: demonstrations, or episodes that were stored."""

    @property
    def examples(self) -> Sequence[Example]:
        """Contexts to learn from."""

    @property
    def images(self) -> "ImageTable | None":
        """Images of the contexts; None if they are of text alone."""

    @property
    def num_turns(self) -> int:
        """Number of turns in them."""

    @property
    def num_episodes(self) -> int:
        """Number of episodes in them."""

    @property
    def successes(self) -> Sequence[bool]:
        """Whether each episode succeeded, of those of which it is known."""

    @property
    def initial_states(self) -> Sequence[str]:
        """Digest of the initial state of each episode, of those of which it is known."""


@dataclass(frozen=True)
class Batch:
    """Examples of one optimiser step (implements `learners.batches.Contexts`)."""

    segments: Sequence[Example]
    images: "ImageTable | None" = None

    @cached_property
    def segment_start(self) -> np.ndarray:
        """Index of the first response token of each example. int64"""
        counts = np.array([example.response_mask.sum() for example in self.segments], dtype=np.int64)
        return np.cumsum(counts) - counts

    @cached_property
    def num_tokens(self) -> int:
        """Number of response tokens."""
        return int(sum(example.response_mask.sum() for example in self.segments))


def examples_of(prompts: Sequence[Sequence[int]], responses: Sequence[Sequence[int]]) -> list[Example]:
    """Make examples of turns in order of time; a turn whose prompt continues the context before it extends its example.

    With a window of one turn, every turn is an example; with the full context, every episode is.

    Args:
        prompts: The whole context before each response.
        responses: The responses.
    """
    examples: list[Example] = []
    context: list[int] = []
    mask: list[bool] = []
    for prompt, response in zip(prompts, responses, strict=True):
        if context and list(prompt[: len(context)]) == context:
            examples.pop()
        else:
            context, mask = [], []
        mask = [*mask, *[False] * (len(prompt) - len(mask)), *[True] * len(response)]
        context = [*prompt, *response]
        examples.append(Example(np.array(context, dtype=np.int64), np.array(mask, dtype=bool)))
    return examples
