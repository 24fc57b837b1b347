"""The rollout engine protocol: token-id prompts + sampling settings + seeds -> token ids + log-probs.

An engine knows nothing of environments, turns or rewards. It is handed whole contexts and may keep whatever lets it
prefill only what is new: contexts grow by appending (the agent's context builder guarantees it), so the ids of an
earlier call of the same `sequence_id`, prompt and response together, are a prefix of the next prompt unless the
context was started anew.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from ragen.config.rollout import SamplingConfig


@dataclass(frozen=True)
class Request:
    """One response asked for.

    Attributes:
        sequence_id: Names the trajectory; unique within a shard.
        prompt_ids: The whole context so far. [num_prompt_tokens]
        uniforms: Numbers in [0, 1) that choose the tokens, one each, by inverse transform sampling in ascending order
            of token id. float64 [max_response_tokens]. Engines that cannot take them (vLLM) use `seed`.
        seed: Sampling seed of this response.
    """

    sequence_id: str
    prompt_ids: Sequence[int]
    uniforms: np.ndarray
    seed: int


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
    """The state an engine keeps for the trajectories of one shard. Not shared between threads."""

    def generate(self, requests: Sequence[Request]) -> list[Response]:
        """Answer all requests, in their order. The result does not depend on other sessions."""

    def close(self) -> None:
        """Free what was kept."""


class RolloutEngine(Protocol):
    """A loaded policy that can generate."""

    is_deterministic: bool
    """Does the same shard give the same bytes on the same machine?"""

    def load(self, folder: str, checkpoint_key: str) -> None:
        """Be at this checkpoint: a no-op when already there.

        Args:
            folder: Local folder in Hugging Face's layout.
            checkpoint_key: Its artifact key.

        Raises:
            PolicyError: If the folder is not a policy.
        """

    def session(self, sampling: SamplingConfig, stop_token_ids: Sequence[int]) -> RolloutSession:
        """Begin a shard. Sessions may be used side by side, one thread each."""
