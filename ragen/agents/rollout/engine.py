"""The rollout engine protocol: token-id prompts + sampling settings + seeds -> token ids + log-probs.

An engine is independent of environments, turns and rewards. It receives whole contexts and may keep state to prefill
only new tokens: contexts grow by appending (the agent's context builder guarantees it), so the ids of the previous call
with the same `sequence_id`, prompt and response together, are a prefix of the next prompt unless a new context was
started.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np

from starpo.ragen.agents.vision.image import PlacedImage
from starpo.ragen.config.rollout import SamplingConfig
from starpo.ragen.core.errors import EngineError


@dataclass(frozen=True)
class Request:
    """A request for one response.

    Attributes:
        sequence_id: Id of the trajectory; unique within a shard.
        prompt_ids: The whole context so far. [num_prompt_tokens]
        uniforms: Numbers in [0, 1) that select the tokens, one each, by inverse transform sampling in ascending order
            of token id. float64 [max_response_tokens]. Engines that do not support them (vLLM) use `seed`.
        seed: Sampling seed of this response.
        messages: Returns the same context as messages, `{"role": ..., "content": ...}`, for servers that do not accept
            ids.
        images: The images of the context, by index into `prompt_ids`, where they have placeholders.
        decide: Returns the response of a player without a model ('random' or 'solver') with these random numbers, as
            token ids with the end token. None: whoever asks has no environment to step.
    """

    sequence_id: str
    prompt_ids: Sequence[int]
    uniforms: np.ndarray
    seed: int
    messages: Callable[[], list[dict[str, str]]] = list
    images: tuple[PlacedImage, ...] = ()
    decide: Callable[[str, random.Random], list[int]] | None = None


@dataclass(frozen=True)
class Response:
    """A sampled response.

    Attributes:
        token_ids: Sampled tokens, including the end token if there is one. [num_response_tokens]
        logprobs: Log-prob of each token under the distribution it was drawn from (temperature and top-p included), in
            nats; at temperature 0 under the unscaled distribution. float32 [num_response_tokens]
        finish_reason: 'stop' at the end token, 'length' at `max_response_tokens`.
    """

    token_ids: list[int]
    logprobs: list[float]
    finish_reason: Literal["stop", "length"]


class RolloutSession(Protocol):
    """The state that an engine keeps for the trajectories of one shard, answered together. Not thread-safe."""

    def generate(self, requests: Sequence[Request]) -> list[Response]:
        """Answer all requests, in their order. The result does not depend on other sessions."""

    def close(self) -> None:
        """Free the session's state."""


@runtime_checkable
class StreamingSession(Protocol):
    """A session whose trajectories do not wait for each other: each response is returned as soon as it has ended."""

    def submit(self, requests: Sequence[Request]) -> None:
        """Put requests in flight; at most one per `sequence_id` at a time."""

    def finished(self) -> list[tuple[str, Response]]:
        """Generate for a while.

        Returns:
            (sequence_id, response) of those that have ended since the last call, in any order; may be empty. Only
            called while requests are in flight.
        """

    def usage(self) -> dict[str, float]:
        """Return the usage of the session's responses so far, by name; usages of several sessions can be summed."""

    def close(self) -> None:
        """Free the session's state; requests in flight are abandoned."""


class RolloutEngine(Protocol):
    """A loaded policy that can generate."""

    is_deterministic: bool
    """Whether the same shard gives the same bytes on the same machine."""
    is_continuous: bool
    """Whether its sessions are streaming; such engines are fastest with all requests at once."""

    def load(self, folder: str, checkpoint_key: str) -> None:
        """Load this checkpoint; a no-op if it is already loaded.

        Args:
            folder: Local folder in Hugging Face's layout.
            checkpoint_key: Its artifact key.

        Raises:
            PolicyError: If the folder is not a policy.
        """

    def session(self, sampling: SamplingConfig, stop_token_ids: Sequence[int]) -> RolloutSession | StreamingSession:
        """Start a session for one shard. Sessions may be used concurrently, one thread each."""


def check_prompt(request: Request, max_response_tokens: int, vocabulary_size: int, max_context_tokens: int) -> None:
    """Check that an engine can answer a request.

    Raises:
        EngineError: If the prompt is empty, contains unknown ids, or leaves no room for a response of maximum length.
    """
    name, ids = request.sequence_id, request.prompt_ids
    if len(ids) == 0:
        raise EngineError(f"the prompt of sequence '{name}' is empty; at least one token is needed")
    if min(ids) < 0 or max(ids) >= vocabulary_size:
        raise EngineError(
            f"the prompt of sequence '{name}' has ids from {min(ids)} to {max(ids)}, but the policy has 0 to "
            f"{vocabulary_size - 1}; does the tokenizer belong to another policy?"
        )
    if len(ids) + max_response_tokens > max_context_tokens:
        raise EngineError(
            f"sequence '{name}': a prompt of {len(ids)} tokens and a response of up to {max_response_tokens} exceed "
            f"the policy's maximum context, {max_context_tokens}; lower rollout.max_context_tokens"
        )
