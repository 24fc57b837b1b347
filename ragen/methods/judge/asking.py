"""One question to a judge, asked again until there is an answer that can be read.

prompt -> request -> text -> read -> JudgeAnswer
             ^________________| failed, or unreadable
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    stop_after_attempt,
    stop_before_delay,
    wait_exponential,
    wait_random,
)
from tenacity.stop import stop_base

from starpo.ragen.agents.rollout.openai.client import open_client
from starpo.ragen.agents.rollout.openai.errors import explained
from starpo.ragen.core.errors import EngineError
from starpo.ragen.methods.judge.settings import JudgeServer

_FIRST_WAIT_S = 0.25
_LONGEST_WAIT_S = 10.0
_LONGEST_REQUESTED_S = 60.0
"""Of a server's Retry-After; a longer one is not obeyed."""
_LONGEST_SHOWN = 80
_PASSING = frozenset({408, 409, 429})
"""Status codes below 500 that may not occur again."""
_OUTSIDE_PROTOCOL = (ValueError, AttributeError, TypeError, IndexError)
"""What reading an answer raises that is no completion, such as a proxy's page."""


class _UnreadableError(Exception):
    """An answer that cannot be read."""


@dataclass(frozen=True)
class Reading:
    """How answers are read.

    Attributes:
        read: Returns what an answer says; None if it cannot be read.
        expected: What is expected, for the message.
    """

    read: Callable[[str], str | None]
    expected: str


@dataclass(frozen=True)
class JudgeAnswer:
    """An answer that could be read.

    Attributes:
        word: What it says.
        text: All of it.
        num_requests: Requests until it came, those that failed included.
    """

    word: str
    text: str
    num_requests: int


def open_judge(options: JudgeServer, asker: str) -> Any:
    """Open a client for `ask`, which retries by itself; the caller must close it.

    Raises:
        MissingPackageError: If the package `openai` is not installed.
    """
    return open_client(options.model_copy(update={"max_retries": 0}), asker)


def ask(
    client: Any, options: JudgeServer, prompt: str, reading: Reading, settings: str, limit_s: float | None = None
) -> JudgeAnswer:
    """Ask until the answer can be read, at most `max_retries` times more.

    Args:
        client: From `open_judge`.
        options: The model, and limits of a request.
        prompt: The question.
        reading: How the answer is read.
        settings: Path of the judge's settings, for messages.
        limit_s: Time limit of all requests together, in seconds; None for no limit.

    Raises:
        EngineError: If no request was answered readably; the message says why the last one was not.
    """
    import openai

    ends_at = None if limit_s is None else time.monotonic() + limit_s
    num_requests = 0

    def request() -> JudgeAnswer:
        nonlocal num_requests
        num_requests += 1
        left_s = options.timeout_s if ends_at is None else max(0.1, ends_at - time.monotonic())
        completion = client.chat.completions.create(
            model=options.model,
            messages=[{"role": "user", "content": prompt}],
            temperature=0.0,
            timeout=min(options.timeout_s, left_s),
            **{options.limit_parameter: options.max_answer_tokens},
        )
        text = completion.choices[0].message.content or ""
        word = reading.read(text)
        if word is None:
            raise _UnreadableError(repr(text[-_LONGEST_SHOWN:]))
        return JudgeAnswer(word, text, num_requests)

    stop: stop_base = stop_after_attempt(options.max_retries + 1)
    attempts = Retrying(
        retry=retry_if_exception(_may_pass),
        stop=stop if limit_s is None else stop | stop_before_delay(limit_s),
        wait=_wait_s,
        reraise=True,
    )
    try:
        return attempts(request)
    except _UnreadableError as error:
        raise EngineError(
            f"the judge '{options.model}' at {options.base_url} said {error} in {num_requests} attempts; expected "
            f"{reading.expected}. Ask for that in {settings}.template, or raise {settings}.max_answer_tokens"
        ) from None
    except (openai.OpenAIError, *_OUTSIDE_PROTOCOL) as error:
        raise explained(error, options, num_requests - 1, settings) from None


def _may_pass(error: BaseException) -> bool:
    import openai

    if isinstance(error, openai.APIStatusError):
        return error.status_code >= 500 or error.status_code in _PASSING
    return isinstance(error, (_UnreadableError, openai.APIConnectionError, *_OUTSIDE_PROTOCOL))


def _wait_s(state: RetryCallState) -> float:
    """Return how long to wait: as long as the server requests, or exponentially longer each time."""
    error = state.outcome.exception() if state.outcome is not None else None
    headers = getattr(getattr(error, "response", None), "headers", {})
    try:
        requested_s = float(headers.get("retry-after", 0.0))
    except ValueError:  # a date
        requested_s = 0.0
    backoff_s = (wait_exponential(_FIRST_WAIT_S, _LONGEST_WAIT_S) + wait_random(0, _FIRST_WAIT_S))(state)
    return max(backoff_s, requested_s if 0.0 < requested_s <= _LONGEST_REQUESTED_S else 0.0)
