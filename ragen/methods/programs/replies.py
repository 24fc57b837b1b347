"""Answers in the form of OpenAI's chat completions: one body, or events of a stream; error bodies.

response of the policy -> Reply -> `completion` or `events`        Refusal -> `error`
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from starpo.ragen.methods.programs.chat import ChatMessage, Refusal
from starpo.ragen.methods.programs.settings import MODEL


@dataclass(frozen=True)
class Reply:
    """A response as the program receives it.

    Attributes:
        id: Unique in the rollout.
        said: Text and calls.
        finish_reason: 'stop', 'length' or 'tool_calls'.
        num_prompt_tokens: Length of the context.
        num_response_tokens: Number of sampled tokens, the end token included.
    """

    id: str
    said: ChatMessage
    finish_reason: str
    num_prompt_tokens: int
    num_response_tokens: int

    @property
    def _usage(self) -> dict[str, int]:
        both = self.num_prompt_tokens, self.num_response_tokens
        return {"prompt_tokens": both[0], "completion_tokens": both[1], "total_tokens": sum(both)}

    @property
    def _message(self) -> dict[str, Any]:
        calls = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in self.said.calls
        ]
        content = None if calls and not self.said.content else self.said.content
        return {"role": "assistant", "content": content} | ({"tool_calls": calls} if calls else {})

    def completion(self) -> bytes:
        """Return the body of a `chat.completion`."""
        choice = {"index": 0, "message": self._message, "finish_reason": self.finish_reason, "logprobs": None}
        return _json({**self._head("chat.completion"), "choices": [choice], "usage": self._usage})

    def events(self, has_usage: bool) -> Iterator[bytes]:
        """Yield the events of a stream, the last one `[DONE]`; with `has_usage`, one of them reports the tokens."""
        delta = self._message
        delta |= {"tool_calls": [{"index": i, **call} for i, call in enumerate(delta.get("tool_calls", []))]}
        first = {name: value for name, value in delta.items() if value != []}
        for part, reason in ((first, None), ({}, self.finish_reason)):
            yield self._event([{"index": 0, "delta": part, "finish_reason": reason, "logprobs": None}])
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
    found = {"message": str(refusal), "type": kind, "param": refusal.param, "code": refusal.code}
    return _json({"error": found})


def models() -> bytes:
    """Return the list of models: the policy."""
    return _json({"object": "list", "data": [{"id": MODEL, "object": "model", "created": 0, "owned_by": "starpo"}]})


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()
