"""`GenerateSession`: what a careful user would write with `transformers` alone, as the baseline of benchmarks.

All live trajectories are in one left-padded batch, with the full prompt at every turn and without log-probs.
"""

import os
import statistics
import time
from collections.abc import Sequence

import torch
from transformers import GenerationConfig, PreTrainedModel

from starpo.ragen.agents.rollout.engine import Request, Response
from starpo.ragen.config.rollout import SamplingConfig

CORES = len(os.sched_getaffinity(0))


class GenerateSession:
    """Session of `transformers` generation that processes the whole prompt again at every turn."""

    def __init__(self, model: PreTrainedModel, stop_token_ids: Sequence[int], sampling: SamplingConfig) -> None:
        self.model, self.stops = model, set(stop_token_ids)
        self.config = GenerationConfig(
            do_sample=True,
            temperature=sampling.temperature,
            top_k=0,
            top_p=1.0,
            max_new_tokens=sampling.max_response_tokens,
            eos_token_id=list(stop_token_ids),
            pad_token_id=model.config.pad_token_id,
        )

    def generate(self, requests: Sequence[Request]) -> list[Response]:
        width = max(len(request.prompt_ids) for request in requests)
        padding = [width - len(request.prompt_ids) for request in requests]
        pad = self.model.config.pad_token_id
        ids = torch.tensor(
            [[pad] * num + list(request.prompt_ids) for num, request in zip(padding, requests, strict=True)],
            device=self.model.device,
        )
        mask = (torch.arange(width, device=ids.device) >= torch.tensor(padding, device=ids.device)[:, None]).long()
        with torch.inference_mode():
            output = self.model.generate(input_ids=ids, attention_mask=mask, generation_config=self.config)
        return [self.response(row) for row in output[:, width:].tolist()]

    def response(self, ids: list[int]) -> Response:
        ends = [place for place, token in enumerate(ids) if token in self.stops]
        ids = ids[: ends[0] + 1] if ends else ids
        return Response(ids, [0.0] * len(ids), "stop" if ends else "length")

    def close(self) -> None:
        pass


def against_generate(by_engine, by_generate, repeats):
    """Play with the engine, and with `generate` on one thread and on all cores, in turn.

    Returns:
        The engine's last turns, the median of the engine's tokens per second over the better baseline's, and both in
        words.
    """
    by_engine()
    ours, theirs, ratios = [], [], []
    for _ in range(repeats):
        speed, turns = tokens_per_s(by_engine)
        ours.append(speed)
        theirs.append(max(tokens_per_s(lambda num=num: _on_threads(num, by_generate))[0] for num in {1, CORES}))
        ratios.append(ours[-1] / theirs[-1])
    words = (
        f"  torch engine, {CORES} processes of 1 thread: {statistics.median(ours):,.0f} tokens/s\n"
        f"  transformers generate, best of 1 and {CORES} threads: {statistics.median(theirs):,.0f} tokens/s\n"
        f"  ratio {statistics.median(ratios):.1f} (of {', '.join(f'{ratio:.1f}' for ratio in sorted(ratios))}); "
        f"load {os.getloadavg()[0]:.1f} on {CORES} cores"
    )
    return turns, statistics.median(ratios), words


def tokens_per_s(rollout):
    """Play once; return tokens per second and the turns."""
    started = time.perf_counter()
    turns = rollout()
    elapsed_s = time.perf_counter() - started
    return sum(map(len, turns["response_ids"].to_pylist())) / elapsed_s, turns


def _on_threads(num_threads, by_generate):
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        return by_generate()
    finally:
        torch.set_num_threads(before)
