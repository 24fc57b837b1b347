"""The rollout engine protocol: token-id prompts + sampling settings + seeds -> token ids + log-probs.

An engine knows nothing of environments, turns or rewards. It is handed whole contexts and may keep whatever lets it
prefill only what is new: contexts grow by appending (the agent's context builder guarantees it), so the ids of an
earlier call of the same `sequence_id`, prompt and response together, are a prefix of the next prompt unless the
context was started anew.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np

from starpo.ragen.config.rollout import SamplingConfig
from starpo.ragen.core.errors import EngineError


@dataclass(frozen=True)
class Request:
    """One response asked for.

    Attributes:
        sequence_id: Names the trajectory; unique within a shard.
        prompt_ids: The whole context so far. [num_prompt_tokens]
        uniforms: Numbers in [0, 1) that choose the tokens, one each, by inverse transform sampling in ascending order
            of token id. float64 [max_response_tokens]. Engines that cannot take them (vLLM) use `seed`.
        seed: Sampling seed of this response.
        messages: Gives the same context as messages, `{"role": ..., "content": ...}`, for servers that take no ids.
    """

    sequence_id: str
    prompt_ids: Sequence[int]
    uniforms: np.ndarray
    seed: int
    messages: Callable[[], list[dict[str, str]]] = list


@dataclass(frozen=True)
class Response:
    """What was sampled.

    Attributes:
        token_ids: The end token included, where there is one. [num_response_tokens]
        logprobs: Of each token under the distribution it was drawn from (temperature and top-p included), nats;
            at temperature 0 under the unscaled distribution. float32 [num_response_tokens]
        finish_reason: 'stop' at the end token, 'length' at `max_response_tokens`.
    """

    token_ids: list[int]
    logprobs: list[float]
    finish_reason: Literal["stop", "length"]


class RolloutSession(Protocol):
    """The state an engine keeps for the trajectories of one shard, answered together. Not shared between threads."""

    def generate(self, requests: Sequence[Request]) -> list[Response]:
        """Answer all requests, in their order. The result does not depend on other sessions."""

    def close(self) -> None:
        """Free what was kept."""


@runtime_checkable
class StreamingSession(Protocol):
    """A session whose trajectories do not wait for each other: each response is handed over when it has ended."""

    def submit(self, requests: Sequence[Request]) -> None:
        """Put requests among those in flight; at most one of a `sequence_id` at a time."""

    def finished(self) -> list[tuple[str, Response]]:
        """Generate for a while.

        Returns:
            (sequence_id, response) of those that have ended since the last call, in any order; it may be none. Only
            called while requests are in flight.
        """

    def usage(self) -> dict[str, float]:
        """What the session's responses took so far, by name; sums over sessions make sense."""

    def close(self) -> None:
        """Free what was kept; requests in flight are abandoned."""


class RolloutEngine(Protocol):
    """A loaded policy that can generate."""

    is_deterministic: bool
    """Does the same shard give the same bytes on the same machine?"""
    is_continuous: bool
    """Are its sessions streaming ones? Then it is best given everything at once."""

    def load(self, folder: str, checkpoint_key: str) -> None:
        """Be at this checkpoint: a no-op when already there.

        Args:
            folder: Local folder in Hugging Face's layout.
            checkpoint_key: Its artifact key.

        Raises:
            PolicyError: If the folder is not a policy.
        """

    def session(self, sampling: SamplingConfig, stop_token_ids: Sequence[int]) -> RolloutSession | StreamingSession:
        """Begin a shard. Sessions may be used side by side, one thread each."""


def check_prompt(request: Request, max_response_tokens: int, vocabulary_size: int, max_context_tokens: int) -> None:
    """Make sure that an engine can answer.

    Raises:
        EngineError: If the prompt is empty, holds unknown ids, or leaves no room for a longest response.
    """
    name, ids = request.sequence_id, request.prompt_ids
    if len(ids) == 0:
        raise EngineError(f"the prompt of sequence '{name}' is empty; at least one token is needed")
    if min(ids) < 0 or max(ids) >= vocabulary_size:
        raise EngineError(
            f"the prompt of sequence '{name}' has ids from {min(ids)} to {max(ids)}, the policy knows 0 to "
            f"{vocabulary_size - 1}; is the tokenizer another policy's?"
        )
    if len(ids) + max_response_tokens > max_context_tokens:
        raise EngineError(
            f"sequence '{name}': a prompt of {len(ids)} tokens and a response of up to {max_response_tokens} pass the "
            f"policy's longest context, {max_context_tokens}; lower rollout.max_context_tokens"
        )
