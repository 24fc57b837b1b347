"""A server that scores given tokens as vLLM's does, by a policy on the CPU."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread
from typing import Any

import pytest
import torch

from starpo.ragen.agents.policy.load import load_policy
from tests.openai_server import Server


@contextmanager
def serving(folder: str) -> Iterator[Server]:
    """Serve the policy of a folder under the name `a-model`."""
    model, tokenizer = load_policy(folder)

    def score(ids: list[int], top_k: int) -> list[dict[str, Any] | None]:
        with torch.no_grad():
            logprobs_TV = model(input_ids=torch.tensor([ids])).logits[0].float().log_softmax(1)
        entries: list[dict[str, Any] | None] = [None]
        for place, sampled in enumerate(ids[1:]):
            entries.append({})
            for number in {sampled, *logprobs_TV[place].topk(top_k).indices.tolist()}:
                logprob = logprobs_TV[place, number]
                rank = int((logprobs_TV[place] > logprob).sum()) + 1
                entry = {"logprob": float(logprob), "rank": rank, "decoded_token": tokenizer.decode([number])}
                entries[-1][str(number)] = entry
        return entries

    with Server() as server, pytest.MonkeyPatch.context() as patched:
        patched.setenv("NO_PROXY", "127.0.0.1")
        server.prompt_logprobs = score
        Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server
        server.shutdown()
