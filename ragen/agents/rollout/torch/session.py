"""One shard's generation: prefill new tokens, decode until all rows have ended, keep the cache for the next turn.

    requests -> distinct prompts -> carried-over cache + prompt tree -> prefill -> decode as a batch -> responses

Tensor suffixes: B sequences (one per request), U distinct prompts, A rows of the batch, K steps, V vocabulary.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from starpo.ragen.agents.rollout.engine import Request, Response, check_prompt
from starpo.ragen.agents.rollout.torch.batch import CacheBatch
from starpo.ragen.agents.rollout.torch.decoder import Decoder
from starpo.ragen.agents.rollout.torch.kv_cache import KVCache
from starpo.ragen.agents.rollout.torch.prompt_tree import grow_prompt_tree
from starpo.ragen.agents.rollout.torch.sampling import draw_tokens
from starpo.ragen.agents.vision.image_table import ImageTable
from starpo.ragen.agents.vision.positions import Grid, grid_positions
from starpo.ragen.config.rollout import SamplingConfig
from starpo.ragen.core.errors import EngineError


@dataclass
class _Kept:
    """Position of a sequence in the cache: its row, and the ids whose keys are cached."""

    row: int
    ids: list[int]


class TorchSession:
    """Implements `engine.RolloutSession`. Keeps the sequences of its last call; others are read from scratch."""

    def __init__(
        self,
        decoder: Decoder,
        sampling: SamplingConfig,
        stop_token_ids: Sequence[int],
        running: Callable[[], AbstractContextManager[None]],
    ) -> None:
        """Created by `TorchEngine.session`; `running` prevents changes of the engine's weights during generation."""
        self._decoder = decoder
        self._sampling = sampling
        self._distribution = (sampling.temperature, sampling.top_p)
        self._is_stop = np.zeros(decoder.vocabulary_size, dtype=bool)
        self._is_stop[list(stop_token_ids)] = True
        self._running = running
        self._cache: KVCache | None = None
        self._kept: dict[str, _Kept] = {}
        self._keeps_cache = True
        self._images = ImageTable()
        self._features: Tensor | None = None
        self._num_looked_at = 0
        self._grids: list[Grid] | None = None

    def generate(self, requests: Sequence[Request]) -> list[Response]:
        """Answer all requests, in their order; without requests, return an empty list.

        Raises:
            EngineError: If a prompt is empty, too long or contains unknown ids, sequence ids are not unique, there are
                too few uniforms, the engine has loaded another checkpoint, or log-probs are not finite.
        """
        if not requests:
            return []
        self._check(requests)
        with self._running(), torch.inference_mode():
            requests = [self._with_image_ids(request) for request in requests]
            self._look()
            return self._decode(requests, *self._prefill(requests))

    def close(self) -> None:
        """Free the cache."""
        self._cache = None
        self._kept = {}

    def _check(self, requests: Sequence[Request]) -> None:
        if len({request.sequence_id for request in requests}) < len(requests):
            raise EngineError("two requests of one call have the same sequence_id; a trajectory makes one per turn")
        budget = self._sampling.max_response_tokens
        for request in requests:
            check_prompt(request, budget, self._decoder.vocabulary_size, self._decoder.max_positions)
            if self._sampling.temperature > 0 and len(request.uniforms) < budget:
                raise EngineError(
                    f"sequence '{request.sequence_id}' has {len(request.uniforms)} uniforms, expected at least {budget}"
                )

    def _prefill(self, requests: Sequence[Request]) -> tuple[KVCache, Tensor, np.ndarray]:
        """Read all prompts, identical ones once.

        Returns:
            The cache, with the distinct prompts in its first rows; the logits after each of them, [U, V]; and the row
            of each request, [B].
        """
        row_of: dict[tuple[int, ...], int] = {}
        rows_B = np.array([row_of.setdefault(tuple(request.prompt_ids), len(row_of)) for request in requests])
        first_U = np.unique(rows_B, return_index=True)[1].tolist()
        prompts = [list(prompt) for prompt in row_of]
        kept = [
            self._extended(requests[index].sequence_id, prompt) for index, prompt in zip(first_U, prompts, strict=True)
        ]
        num_carried_U = np.array([len(entry.ids) for entry in kept])
        tree = grow_prompt_tree(
            [prompt[len(entry.ids) :] for prompt, entry in zip(prompts, kept, strict=True)], num_carried_U
        )
        if self._grids is not None:
            rows_N, index_N = tree.places // tree.nodes.shape[1], tree.positions
            of_rows = [self._grid_positions(prompt) for prompt in prompts]
            tree = replace(
                tree, positions=np.stack([of_rows[r][:, i] for r, i in zip(rows_N, index_N, strict=True)], 1)
            )
        num_free = tree.nodes.shape[1] + self._sampling.max_response_tokens
        if self._kept:  # with a limited window every prompt starts a new context, and nothing need be kept
            self._keeps_cache = bool(num_carried_U.any())
        if self._cache is not None and num_carried_U.any():
            kept_rows_U = np.array([entry.row for entry in kept])
            cache = self._cache.carried_over(kept_rows_U, num_carried_U, len(requests), num_free)
        else:
            cache = KVCache(self._decoder.cache_shape, len(requests), num_free)
        self.close()
        return cache, self._decoder.prefill(tree, cache, self._features), rows_B

    def _with_image_ids(self, request: Request) -> Request:
        """Return the request with ids of its images' own in place of their placeholders."""
        if not request.images:
            return request
        return replace(request, prompt_ids=self._images.put(request.prompt_ids, request.images))

    def _look(self) -> None:
        """Compute the features of the images that are new; those of others are kept from earlier calls."""
        new = self._images.images[self._num_looked_at :]
        if new:
            features = self._decoder.image_features(new)
            self._features = features if self._features is None else torch.cat([self._features, features])
            self._num_looked_at += len(new)
            self._grids = self._decoder.grids(self._images.images)

    def _grid_positions(self, token_ids: Sequence[int]) -> np.ndarray:
        """Return time, row and column of every token of a context. int64 [3, T]"""
        assert self._grids is not None
        return grid_positions(torch.tensor([token_ids]), self._grids)[:, 0].numpy()

    def _next_position(self, prompt_ids: Sequence[int]) -> int:
        """Return the position of the token after a context."""
        return len(prompt_ids) if self._grids is None else int(self._grid_positions(prompt_ids)[:, -1].max()) + 1

    def _extended(self, sequence_id: str, prompt: list[int]) -> _Kept:
        """Return the cached part of this sequence if the prompt extends it; otherwise an empty entry, with any row."""
        kept = self._kept.get(sequence_id)
        if kept is not None and len(kept.ids) < len(prompt) and prompt[: len(kept.ids)] == kept.ids:
            return kept
        return _Kept(row=0, ids=[])

    def _decode(
        self, requests: Sequence[Request], cache: KVCache, logits: Tensor, rows_B: np.ndarray
    ) -> list[Response]:
        """Draw tokens until every sequence has ended; sequences with equal tokens so far share a row."""
        num_steps = self._sampling.max_response_tokens
        next_B = np.array([self._next_position(request.prompt_ids) for request in requests])
        uniforms_KB = np.stack([request.uniforms[:num_steps] for request in requests], axis=1).astype(np.float64)
        tokens_KB = np.zeros((num_steps, len(requests)), dtype=np.int64)
        logprobs_KB = np.zeros((num_steps, len(requests)), dtype=np.float32)
        num_sampled_B = np.full(len(requests), num_steps)
        has_stopped_B = np.zeros(len(requests), dtype=bool)

        batch = CacheBatch(cache, rows_B, len(logits), keeps_ended=self._keeps_cache)
        for step in range(num_steps):
            going = batch.going
            uniforms = torch.from_numpy(uniforms_KB[step, going]).to(logits.device)
            rows = batch.rows_of_going(logits.device)
            tokens, logprobs = draw_tokens(logits, uniforms, *self._distribution, rows)
            tokens_KB[step, going] = drawn = tokens.cpu().numpy()
            logprobs_KB[step, going] = logprobs.cpu().numpy()
            is_stop = self._is_stop[drawn]
            has_stopped_B[going[is_stop]] = True
            num_sampled_B[going[is_stop]] = step + 1
            if is_stop.all() or step == num_steps - 1:
                break
            tokens_A, sequences_A = batch.advance(drawn, is_stop)
            positions_A = next_B[sequences_A] + step
            logits = self._decoder.step(torch.from_numpy(tokens_A).to(logits.device), positions_A, cache)

        responses = [
            Response(
                tokens_KB[:num, index].tolist(), logprobs_KB[:num, index].tolist(), "stop" if stopped else "length"
            )
            for index, (num, stopped) in enumerate(zip(num_sampled_B.tolist(), has_stopped_B.tolist(), strict=True))
        ]
        _check_finite(requests, responses)
        if self._keeps_cache:
            self._cache = cache
            self._kept = {  # except the last token drawn, which was never read
                request.sequence_id: _Kept(row, [*request.prompt_ids, *response.token_ids[:-1]])
                for request, response, row in zip(requests, responses, batch.rows_B.tolist(), strict=True)
            }
        return responses


def _check_finite(requests: Sequence[Request], responses: Sequence[Response]) -> None:
    for request, response in zip(requests, responses, strict=True):
        if not np.isfinite(response.logprobs).all():
            raise EngineError(
                f"sequence '{request.sequence_id}': a log-prob is not finite; the policy's weights are damaged "
                "(the training that wrote them has diverged), or overflow in the engine's dtype"
            )
