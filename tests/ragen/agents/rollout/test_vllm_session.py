"""Sessions that share a vLLM: each receives its own responses and errors, whichever session runs the step."""

from types import SimpleNamespace

import numpy as np
import pytest

from starpo.ragen.agents.rollout.engine import Request, Response
from starpo.ragen.agents.rollout.vllm.engine import VLLMEngine
from starpo.ragen.agents.rollout.vllm.session import InFlight
from starpo.ragen.config.rollout import SamplingConfig
from starpo.ragen.core.errors import EngineError


class OneStep:
    """Stand-in for vLLM that ends all responses in one step, with the given log-probs."""

    model_config = SimpleNamespace(get_vocab_size=lambda: 10)

    def __init__(self, *logprobs):
        self.logprobs = list(logprobs)
        self.names = []

    def add_request(self, name, *_, **__):
        self.names.append(name)

    def step(self):
        names, self.names = self.names, []
        return [self._output(name, self.logprobs.pop(0)) for name in names]

    def _output(self, name, logprob):
        spoken = SimpleNamespace(token_ids=[7], logprobs=[{7: SimpleNamespace(logprob=logprob)}], finish_reason="stop")
        return SimpleNamespace(
            request_id=name, finished=True, prompt_token_ids=[1, 2], outputs=[spoken], num_cached_tokens=1
        )


@pytest.fixture
def begin():
    """`begin(llm, *names)`: sessions on one engine, each with a request of its name in flight."""

    def sessions(llm, *names):
        engine = VLLMEngine()
        engine._llm, engine._checkpoint_key = llm, "checkpoint"
        begun = [engine.session(SamplingConfig(), [0]) for _ in names]
        for session, name in zip(begun, names, strict=True):
            engine.add(InFlight(session, Request(name, [1, 2], np.zeros(0), seed=0)), None)
        return begun

    return sessions


def test_error_raised_by_its_session(begin):
    first, second, third = begin(OneStep(-0.5, float("nan"), -0.25), "first", "second", "third")
    assert first.finished() == [("first", Response([7], [-0.5], "stop"))]
    with pytest.raises(EngineError, match="sequence 'second': a log-prob is not finite"):
        second.finished()
    assert third.finished() == [("third", Response([7], [-0.25], "stop"))]
    assert third.usage() == {"prompt_tokens": 2, "cached_prompt_tokens": 1, "response_tokens": 1}
