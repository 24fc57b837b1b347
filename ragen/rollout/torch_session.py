"""One shard's generation: prefill what is new, decode until all rows have ended, keep the cache for the next turn.

    requests -> distinct prompts -> carried-over cache + prompt tree -> prefill -> expand to rows -> decode -> responses

Tensor suffixes: B rows (one a request), U distinct rows, K steps.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ragen.config.rollout import SamplingConfig
from ragen.errors import EngineError
from ragen.rollout.decoder import Decoder
from ragen.rollout.engine import Request, Response
from ragen.rollout.kv_cache import KVCache
from ragen.rollout.prompt_tree import grow_prompt_tree
from ragen.rollout.sampling import draw_tokens

_LEAVING_SHARE = 4
"""Rows leave the batch when 1 in this many has ended: moving rows costs about what a few steps of them cost."""


@dataclass
class _Kept:
    """Where a sequence is in the cache: its row, and the ids whose keys are there."""

    row: int
    ids: list[int]


class TorchSession:
    """Implements `ragen.rollout.engine.RolloutSession`. Keeps the sequences of its last call; others begin anew."""

    def __init__(
        self,
        decoder: Decoder,
        sampling: SamplingConfig,
        stop_token_ids: Sequence[int],
        running: Callable[[], AbstractContextManager[None]],
    ) -> None:
        """Made by `TorchEngine.session`; `running` holds the engine's weights in place while it generates."""
        self._decoder = decoder
        self._sampling = sampling
        self._is_stop = np.zeros(decoder.vocabulary_size, dtype=bool)
        self._is_stop[list(stop_token_ids)] = True
        self._running = running
        self._cache: KVCache | None = None
        self._kept: dict[str, _Kept] = {}

    def generate(self, requests: Sequence[Request]) -> list[Response]:
        """Answer all requests, in their order; none give none.

        Raises:
            EngineError: If a prompt is empty, too long or holds unknown ids, ids of sequences are not unique, uniforms
                are too few, the engine has moved to another checkpoint, or log-probs are not finite.
        """
        if not requests:
            return []
        self._check(requests)
        with self._running(), torch.inference_mode():
            cache, logits_BV = self._prefill(requests)
            return self._decode(requests, cache, logits_BV)

    def close(self) -> None:
        """Free the cache."""
        self._cache = None
        self._kept = {}

    def _check(self, requests: Sequence[Request]) -> None:
        if len({request.sequence_id for request in requests}) < len(requests):
            raise EngineError("two requests of one call have the same sequence_id; each trajectory asks once a turn")
        budget, vocabulary = self._sampling.max_response_tokens, self._decoder.vocabulary_size
        for request in requests:
            name, ids = request.sequence_id, request.prompt_ids
            if len(ids) == 0:
                raise EngineError(f"the prompt of sequence '{name}' is empty; at least one token is needed")
            if min(ids) < 0 or max(ids) >= vocabulary:
                raise EngineError(
                    f"the prompt of sequence '{name}' has ids from {min(ids)} to {max(ids)}, the policy knows 0 to "
                    f"{vocabulary - 1}; is the tokenizer another policy's?"
                )
            if len(ids) + budget > self._decoder.max_positions:
                raise EngineError(
                    f"sequence '{name}': a prompt of {len(ids)} tokens and a response of up to {budget} pass the "
                    f"policy's longest context, {self._decoder.max_positions}; lower rollout.max_context_tokens"
                )
            if self._sampling.temperature > 0 and len(request.uniforms) < budget:
                raise EngineError(f"sequence '{name}' has {len(request.uniforms)} uniforms, {budget} are needed")

    def _prefill(self, requests: Sequence[Request]) -> tuple[KVCache, Tensor]:
        """Read all prompts; identical ones once."""
        row_of: dict[tuple[int, ...], int] = {}
        rows_B = np.array([row_of.setdefault(tuple(request.prompt_ids), len(row_of)) for request in requests])
        first_U = np.unique(rows_B, return_index=True)[1]
        prompts = [list(prompt) for prompt in row_of]
        kept = [
            self._extended(requests[first].sequence_id, prompt) for first, prompt in zip(first_U, prompts, strict=True)
        ]
        num_carried_U = np.array([len(entry.ids) if entry else 0 for entry in kept])
        tree = grow_prompt_tree(
            [prompt[num:] for prompt, num in zip(prompts, num_carried_U, strict=True)], num_carried_U
        )
        is_distinct = len(prompts) == len(requests)
        num_new, num_steps = tree.nodes.shape[1], self._sampling.max_response_tokens
        num_free = num_new + num_steps if is_distinct else num_new
        if self._cache is not None and num_carried_U.any():
            cache = self._cache.carried_over(np.array([entry.row if entry else -1 for entry in kept]), num_free)
        else:
            cache = KVCache(self._decoder.cache_shape, len(prompts), num_free)
        self.close()
        logits_UV = self._decoder.prefill(tree, cache)
        if is_distinct:
            return cache, logits_UV
        return cache.expanded(rows_B, num_steps), logits_UV[torch.from_numpy(rows_B).to(logits_UV.device)]

    def _extended(self, sequence_id: str, prompt: list[int]) -> _Kept | None:
        """What is kept of this sequence, if the prompt goes on from there."""
        kept = self._kept.get(sequence_id)
        if kept is not None and len(kept.ids) < len(prompt) and prompt[: len(kept.ids)] == kept.ids:
            return kept
        return None

    def _decode(self, requests: Sequence[Request], cache: KVCache, logits: Tensor) -> list[Response]:
        """Draw tokens until every row has ended. Rows that have are swapped behind those that go on."""
        num_steps, num_rows = self._sampling.max_response_tokens, len(requests)
        num_prompt_B = np.array([len(request.prompt_ids) for request in requests])
        uniforms_KB = np.stack([request.uniforms[:num_steps] for request in requests], axis=1).astype(np.float64)
        tokens_KB = np.zeros((num_steps, num_rows), dtype=np.int64)
        logprobs_KB = np.zeros((num_steps, num_rows), dtype=np.float32)
        num_sampled_B = np.full(num_rows, num_steps)
        goes_on_B = np.ones(num_rows, dtype=bool)

        first_slot = cache.num_slots
        bias = cache.bias()
        order = np.arange(num_rows)  # request of each cache row
        here = order  # requests of the rows still in the batch, which are the cache's first
        for step in range(num_steps):
            uniforms = torch.from_numpy(uniforms_KB[step, here]).to(logits.device)
            tokens, logprobs = draw_tokens(logits, uniforms, self._sampling.temperature, self._sampling.top_p)
            tokens_KB[step, here] = drawn = tokens.cpu().numpy()
            logprobs_KB[step, here] = logprobs.cpu().numpy()
            ends = here[self._is_stop[drawn] & goes_on_B[here]]
            num_sampled_B[ends] = step + 1
            goes_on_B[ends] = False
            num_left = int(goes_on_B[here].sum())
            if num_left == 0 or step == num_steps - 1:
                break
            if (len(here) - num_left) * _LEAVING_SHARE >= len(here):
                holes, fillers = _exchanged(goes_on_B[here], num_left)
                if len(holes):
                    cache.swap_rows(holes, fillers)
                    order[holes], order[fillers] = order[fillers], order[holes]
                    bias[torch.from_numpy(holes)] = bias[torch.from_numpy(fillers)]
                    drawn[holes] = drawn[fillers]
                here = order[:num_left]
                tokens = torch.from_numpy(drawn[:num_left]).to(logits.device)
            logits = self._decoder.step(tokens, num_prompt_B[here] + step, bias[: len(here)], cache)

        responses = [
            Response(tokens_KB[:num, row].tolist(), logprobs_KB[:num, row].tolist(), "length" if goes_on else "stop")
            for row, (num, goes_on) in enumerate(zip(num_sampled_B, goes_on_B, strict=True))
        ]
        _check_finite(requests, responses)
        cache.close_columns(first_slot, num_sampled_B[order] - 1)  # the last token drawn was never read
        self._cache = cache
        self._kept = {
            requests[index].sequence_id: _Kept(row, [*requests[index].prompt_ids, *responses[index].token_ids[:-1]])
            for row, index in enumerate(order.tolist())
        }
        return responses


def _exchanged(goes_on: np.ndarray, num_left: int) -> tuple[np.ndarray, np.ndarray]:
    """Ended rows among the first `num_left`, and as many that go on behind them."""
    return np.flatnonzero(~goes_on[:num_left]), num_left + np.flatnonzero(goes_on[num_left:])


def _check_finite(requests: Sequence[Request], responses: Sequence[Response]) -> None:
    for request, response in zip(requests, responses, strict=True):
        if not np.isfinite(response.logprobs).all():
            raise EngineError(
                f"sequence '{request.sequence_id}': a log-prob is not finite; the policy's weights are damaged "
                "(the training that wrote them has diverged)"
            )
