"""One shard on a server: one thread per request in flight; each response is returned when it arrives.

requests -> the engine's threads -> client (retries, back-off, Retry-After) -> answers -> responses
"""

import math
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedTokenizerBase

from starpo.ragen.agents.rollout.engine import Request, Response
from starpo.ragen.agents.rollout.openai.errors import explained
from starpo.ragen.config.openai_engine import OpenAIEngineConfig
from starpo.ragen.config.rollout import SamplingConfig
from starpo.ragen.core.errors import EngineError
from starpo.ragen.core.visible import quoted

_POLL_S = 0.5  # so that deadlines are checked while the server does not respond
_LARGEST_SEED = 2**31  # the range that servers accept is not documented
_TAGS = ("<think>", "<answer>")


@dataclass(frozen=True)
class _Answer:
    """An answer of the server.

    Attributes:
        text: Generated text.
        token_ids: Its tokens, if the server returns them.
        is_finished: Whether it ended by itself, not at the length limit.
        prompt_tokens: Number of prompt tokens, as counted by the server.
        response_tokens: Number of response tokens, as counted by the server.
        retries: Number of failed attempts before this one.
    """

    text: str
    token_ids: list[int] | None
    is_finished: bool
    prompt_tokens: int
    response_tokens: int
    retries: int


class OpenAISession:
    """Implements `ragen.agents.rollout.engine.StreamingSession`. Log-probs are NaN: unknown."""

    def __init__(
        self,
        client: Any,
        threads: ThreadPoolExecutor,
        config: OpenAIEngineConfig,
        tokenizer: PreTrainedTokenizerBase,
        sampling: SamplingConfig,
        stop_token_ids: Sequence[int],
    ) -> None:
        """Created by `OpenAIEngine.session`; takes ownership of the client, which `close` closes. Others use the
        threads, too."""
        self._client = client
        self._config = config
        self._tokenizer = tokenizer
        self._sampling = sampling
        self._stop_token_ids = list(stop_token_ids)
        self._threads = threads
        self._in_flight: dict[Future[_Answer], Request] = {}
        self._usage = dict.fromkeys(("requests", "retries", "prompt_tokens", "response_tokens"), 0.0)

    def submit(self, requests: Sequence[Request]) -> None:
        """See `StreamingSession.submit`."""
        for request in requests:
            opening = self._opening(request)
            messages = request.messages() if self._config.protocol == "chat" else []
            self._in_flight[self._threads.submit(self._ask, request, messages, opening)] = request

    def finished(self) -> list[tuple[str, Response]]:
        """See `StreamingSession.finished`.

        Raises:
            EngineError: If a request has failed after all retries; `close` abandons the others.
        """
        done, _ = wait(self._in_flight, timeout=_POLL_S, return_when=FIRST_COMPLETED)
        finished = []
        for future in [future for future in self._in_flight if future in done]:  # in the order of submission
            request = self._in_flight.pop(future)
            answer = future.result()
            finished.append((request.sequence_id, self._response(answer)))
            self._count(answer)
        return finished

    def usage(self) -> dict[str, float]:
        """Return requests, retries, tokens as counted by the server, and their cost in the currency of the prices."""
        prompt, response = self._usage["prompt_tokens"], self._usage["response_tokens"]
        cost = prompt * self._config.prompt_price + response * self._config.response_price
        return self._usage | {"cost": cost / 1e6}  # of the sums, as answers come in any order

    def close(self) -> None:
        """See `StreamingSession.close`; requests in flight end with an error that is ignored."""
        for future in self._in_flight:
            future.cancel()
        self._client.close()
        self._in_flight = {}

    def _ask(self, request: Request, messages: list[dict[str, str]], opening: str) -> _Answer:
        import openai

        common: dict[str, Any] = {
            "model": self._config.model,
            self._config.limit_parameter: self._sampling.max_response_tokens,
            "temperature": self._sampling.temperature,
            "top_p": self._sampling.top_p,
            "seed": request.seed % _LARGEST_SEED,
        }
        try:
            if self._config.protocol == "chat":
                raw = self._client.chat.completions.with_raw_response.create(messages=messages, **common)
            else:
                exact = {"return_token_ids": True, "stop_token_ids": self._stop_token_ids, "skip_special_tokens": False}
                raw = self._client.completions.with_raw_response.create(
                    prompt=list(request.prompt_ids),
                    extra_body=exact if self._config.protocol == "vllm" else None,
                    **common,
                )
            return self._read(raw.parse(), raw.retries_taken, opening)
        except EngineError:
            raise
        except (openai.OpenAIError, ValueError, AttributeError, TypeError, IndexError) as error:
            raise explained(error, self._config, self._config.max_retries) from None

    def _read(self, completion: Any, retries: int, opening: str) -> _Answer:
        choice = completion.choices[0]
        text = choice.message.content if self._config.protocol == "chat" else choice.text
        if not isinstance(text, str | None):
            raise TypeError
        token_ids = None
        if self._config.protocol == "vllm":
            if not isinstance(ids := getattr(choice, "token_ids", None), list):
                raise EngineError(
                    f"the server at {self._config.base_url} returns no token_ids, which rollout.openai.protocol = "
                    "'vllm' needs; set 'completions' if it has the checkpoint's tokenizer, or 'chat' for messages alone"
                )
            token_ids = ids
            self._check_tokenizer(token_ids, text or "")
        usage = completion.usage
        return _Answer(
            text=(text or "").lstrip().removeprefix(opening) if opening else text or "",
            token_ids=token_ids,
            is_finished=choice.finish_reason == "stop",
            prompt_tokens=usage.prompt_tokens if usage else 0,
            response_tokens=usage.completion_tokens if usage else 0,
            retries=retries,
        )

    def _check_tokenizer(self, token_ids: list[int], text: str) -> None:
        """Check that the server's tokens are those of the checkpoint's tokenizer.

        Raises:
            EngineError: If they are not, by their number or by the text that they stand for.
        """
        size = len(self._tokenizer)
        is_known = max(token_ids, default=0) < size
        decoded = str(self._tokenizer.decode(token_ids, skip_special_tokens=False)) if is_known else ""
        if not (is_known and letters(decoded).startswith(letters(text))):
            read = f"read {quoted(decoded[:60])} here" if is_known else f"are {max(token_ids)} and less, of {size} here"
            raise EngineError(
                f"the server at {self._config.base_url} has another tokenizer than the checkpoint: the tokens of its "
                f"response {quoted(text[:60])} {read}. With rollout.openai.protocol = 'chat' it is asked by messages"
            )

    def _response(self, answer: _Answer) -> Response:
        if answer.token_ids is not None:
            ids = answer.token_ids
        else:
            ids = self._tokenizer.encode(answer.text, add_special_tokens=False)
            ids += self._stop_token_ids[:1] if answer.is_finished or not ids else []  # reasoning may consume all tokens
        return Response(ids, [math.nan] * len(ids), "stop" if answer.is_finished else "length")

    def _count(self, answer: _Answer) -> None:
        counted = (1, answer.retries, answer.prompt_tokens, answer.response_tokens)
        for name, value in zip(self._usage, counted, strict=True):
            self._usage[name] += value

    def _opening(self, request: Request) -> str:
        """Return the opening tag that the prompt ends with, if a chat model does not see it and generates it itself."""
        if self._config.protocol != "chat":
            return ""
        tail = str(self._tokenizer.decode(list(request.prompt_ids)[-16:])).rstrip()  # a template may end the line
        return next((tag for tag in _TAGS if tail.endswith(tag)), "")


def letters(text: str) -> str:
    """Return the letters and digits of a text: tokenizers agree on them, whatever they do with blanks and bytes."""
    return "".join(filter(str.isalnum, text))
