"""Answers in the form of OpenAI's chat completions: one body, or events of a stream; error bodies.

response of the policy -> Reply -> `completion` or `events`        Refusal -> `error`
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from starpo.ragen.methods.programs.chat import ChatMessage, Refusal
from starpo.ragen.methods.programs.settings import MODEL


@dataclass(frozen=True)
class Reply:
    """A response as the program receives it.

    Attributes:
        id: Unique in the rollout.
        message: Text and calls.
        finish_reason: 'stop', 'length' or 'tool_calls'.
        num_prompt_tokens: Length of the context.
        num_response_tokens: Number of sampled tokens, the end token included.
        reasoning: Reasoning that its text does not have; '' if the text has all.
        logprobs: Text and log-prob of each token, in nats; None if they were not asked for. [num_response_tokens]
    """

    id: str
    message: ChatMessage
    finish_reason: str
    num_prompt_tokens: int
    num_response_tokens: int
    reasoning: str = ""
    logprobs: Sequence[tuple[str, float]] | None = None

    @property
    def _usage(self) -> dict[str, int]:
        both = self.num_prompt_tokens, self.num_response_tokens
        return {"prompt_tokens": both[0], "completion_tokens": both[1], "total_tokens": sum(both)}

    @property
    def _message(self) -> dict[str, Any]:
        calls = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in self.message.calls
        ]
        content = None if calls and not self.message.content else self.message.content
        more = {"tool_calls": calls, "reasoning_content": self.reasoning}
        return {"role": "assistant", "content": content} | {name: value for name, value in more.items() if value}

    @property
    def _logprobs(self) -> dict[str, Any] | None:
        if self.logprobs is None:
            return None
        tokens = [
            {"token": text, "logprob": logprob, "bytes": list(text.encode("utf-8", "replace")), "top_logprobs": []}
            for text, logprob in self.logprobs
        ]
        return {"content": tokens, "refusal": None}

    def completion(self) -> bytes:
        """Return the body of a `chat.completion`."""
        choice = {"index": 0, "message": self._message, "finish_reason": self.finish_reason}
        choice["logprobs"] = self._logprobs
        return _json({**self._head("chat.completion"), "choices": [choice], "usage": self._usage})

    def events(self, has_usage: bool) -> Iterator[bytes]:
        """Yield the events of a stream, the last one `[DONE]`; with `has_usage`, one of them reports the tokens."""
        delta = self._message
        delta |= {"tool_calls": [{"index": i, **call} for i, call in enumerate(delta.get("tool_calls", []))]}
        first = {name: value for name, value in delta.items() if value != []}
        for part, reason, logprobs in ((first, None, self._logprobs), ({}, self.finish_reason, None)):
            yield self._event([{"index": 0, "delta": part, "finish_reason": reason, "logprobs": logprobs}])
        if has_usage:
            yield self._event([], usage=self._usage)
        yield b"data: [DONE]\n\n"

    def _event(self, choices: list[Any], **more: Any) -> bytes:
        return b"data: " + _json({**self._head("chat.completion.chunk"), "choices": choices, **more}) + b"\n\n"

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": 0, "model": MODEL}


def error(refusal: Refusal) -> bytes:
    """Return the body of an error."""
    kind = "authentication_error" if refusal.status == 401 else "invalid_request_error"
    details = {"message": str(refusal), "type": kind, "param": refusal.param, "code": refusal.code}
    return _json({"error": details})


def models() -> bytes:
    """Return the list of models: the policy."""
    return _json({"object": "list", "data": [{"id": MODEL, "object": "model", "created": 0, "owned_by": "starpo"}]})


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()
