"""`GenerateSession`: what a careful user would write with `transformers` alone, as the baseline of benchmarks.

All live trajectories are in one left-padded batch, with the full prompt at every turn and without log-probs.
"""

from collections.abc import Sequence

import torch
from transformers import GenerationConfig, PreTrainedModel

from starpo.ragen.agents.rollout.engine import Request, Response
from starpo.ragen.config.rollout import SamplingConfig


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
