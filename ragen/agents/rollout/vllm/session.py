"""One shard on vLLM: requests immediately join those in flight, of all sessions; responses are returned as they end.

requests -> SamplingParams -> VLLMEngine.add -> VLLMEngine.advance -> take -> responses
"""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starpo.ragen.agents.rollout.engine import Request, Response, check_prompt
from starpo.ragen.config.rollout import SamplingConfig
from starpo.ragen.core.errors import EngineError

if TYPE_CHECKING:
    from starpo.ragen.agents.rollout.vllm.engine import VLLMEngine


@dataclass(frozen=True)
class InFlight:
    """A request in flight, and the session that it belongs to."""

    session: "VLLMSession"
    request: Request


class VLLMSession:
    """Implements `ragen.agents.rollout.engine.StreamingSession`.

    Attributes:
        checkpoint_key: The checkpoint that was loaded when the session started.
    """

    def __init__(
        self, engine: "VLLMEngine", sampling: SamplingConfig, stop_token_ids: Sequence[int], checkpoint_key: str
    ) -> None:
        """Created by `VLLMEngine.session`."""
        self.checkpoint_key = checkpoint_key
        self._engine = engine
        self._sampling = sampling
        self._stop_token_ids = list(stop_token_ids)
        self._ended: deque[tuple[InFlight, Any]] = deque()
        self._usage = dict.fromkeys(("prompt_tokens", "cached_prompt_tokens", "response_tokens"), 0.0)

    def submit(self, requests: Sequence[Request]) -> None:
        """See `StreamingSession.submit`.

        Raises:
            EngineError: If a prompt is empty, too long or contains unknown ids, or if the engine has loaded another
                checkpoint.
        """
        for request in requests:
            check_prompt(
                request,
                self._sampling.max_response_tokens,
                self._engine.vocabulary_size,
                self._engine.max_context_tokens,
            )
        for request in requests:
            self._engine.add(InFlight(self, request), self._params(request))

    def finished(self) -> list[tuple[str, Response]]:
        """See `StreamingSession.finished`; executes at most one step of the engine.

        Raises:
            EngineError: If vLLM fails, or a response of this session failed or has log-probs that are not finite.
        """
        if not self._ended:
            self._engine.advance()
        return [self._response(*self._ended.popleft()) for _ in range(len(self._ended))]

    def usage(self) -> dict[str, float]:
        """Return the numbers of prompt tokens, of those found in the prefix cache, and of response tokens."""
        return dict(self._usage)

    def close(self) -> None:
        """See `StreamingSession.close`."""
        self._engine.abandon(self)

    def take(self, entry: InFlight, output: Any) -> None:
        """Receive an output that has ended; called by the engine, in the thread of any session."""
        self._ended.append((entry, output))

    def _response(self, entry: InFlight, output: Any) -> tuple[str, Response]:
        (spoken,) = output.outputs
        name, ids = entry.request.sequence_id, list(spoken.token_ids)
        if list(output.prompt_token_ids) != list(entry.request.prompt_ids):
            raise EngineError(
                f"sequence '{name}': vLLM read another prompt than it was sent, of {len(output.prompt_token_ids)} "
                f"tokens instead of {len(entry.request.prompt_ids)}; it would answer something else than what is stored"
            )
        logprobs = [step[token].logprob for token, step in zip(ids, spoken.logprobs, strict=True)]
        if spoken.finish_reason not in ("stop", "length"):
            raise EngineError(f"sequence '{name}': vLLM ended its response with finish reason '{spoken.finish_reason}'")
        if not all(map(math.isfinite, logprobs)):
            raise EngineError(
                f"sequence '{name}': a log-prob is not finite; the policy's weights are damaged (the training that "
                "wrote them has diverged), or overflow in rollout.vllm.dtype"
            )
        self._usage["prompt_tokens"] += len(entry.request.prompt_ids)
        self._usage["cached_prompt_tokens"] += output.num_cached_tokens or 0
        self._usage["response_tokens"] += len(ids)
        return name, Response(ids, logprobs, spoken.finish_reason)

    def _params(self, request: Request) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        return SamplingParams(
            temperature=self._sampling.temperature,
            top_p=self._sampling.top_p,
            max_tokens=self._sampling.max_response_tokens,
            stop_token_ids=self._stop_token_ids,
            logprobs=0,
            flat_logprobs=True,  # numbers in lists, not an object and a dictionary per token, until it has ended
            seed=request.seed if self._engine.should_seed_requests else None,
            ignore_eos=True,  # `stop_token_ids` holds all end tokens
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
