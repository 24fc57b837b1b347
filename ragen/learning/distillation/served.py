"""Log-probs of stored responses under a teacher on a server (vLLM), which is sent the tokens of whole contexts.

contexts -> requests, some at a time -> prompt_logprobs, and whether they are of these tokens -> TeacherScores
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from starpo.ragen.agents.rollout.openai.client import open_client
from starpo.ragen.agents.rollout.openai.errors import explained
from starpo.ragen.agents.rollout.openai.session import letters
from starpo.ragen.config.teachers import ServerTeacher
from starpo.ragen.core.errors import ConfigError, EngineError, LearnerError, StarPOError
from starpo.ragen.core.visible import quoted
from starpo.ragen.learning.distillation.contexts import TeacherContexts
from starpo.ragen.learning.distillation.scoring import TeacherScores
from starpo.ragen.learning.learners.learner import OnProgress

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_ASKER = "teacher.type = 'server'"
_NUM_PROBED = 256
_PROBE_TIMEOUT_S = 20.0
_UNKNOWN = "\N{REPLACEMENT CHARACTER}"
_Scored = tuple[float, bool, list[int], list[float]]
"""Of a token: its log-prob, whether it is the most probable, and the most probable tokens with their log-probs."""
_NOTHING: _Scored = (0.0, False, [], [])
_OUTSIDE_PROTOCOL = (ValueError, AttributeError, TypeError, LookupError)
"""What reading an answer raises that is no completion, such as a proxy's page."""


def check_server(settings: ServerTeacher, tokenizer: "PreTrainedTokenizerBase") -> None:
    """Check with one request that the server scores given tokens, and reads them as the policy writes them.

    Args:
        settings: The server.
        tokenizer: The policy's. Of its tokens, 256 are asked for, evenly spread.

    Raises:
        EngineError: If the server does not respond, refuses the key, does not have the model or scores no tokens.
        ConfigError: If one of the tokens stands for other text there.
        MissingPackageError: If the package `openai` is not installed.
    """
    hasty = {"timeout_s": min(settings.timeout_s, _PROBE_TIMEOUT_S), "max_retries": min(settings.max_retries, 1)}
    ids = np.unique(np.linspace(0, len(tokenizer) - 1, _NUM_PROBED).astype(int)).tolist()
    with closing(_Requests(settings.model_copy(update=hasty), tokenizer)) as requests:
        requests.score(ids)


def score_on_server(
    contexts: TeacherContexts,
    tokenizer: "PreTrainedTokenizerBase",
    settings: ServerTeacher,
    on_progress: OnProgress | None = None,
) -> TeacherScores:
    """Score all response tokens, at temperature 1.

    Args:
        contexts: At least one.
        tokenizer: The policy's.
        settings: The server, and how long it may take.
        on_progress: Called with the number of contexts scored, and their total.

    Raises:
        EngineError: If the server fails after all retries, or scores no tokens.
        ConfigError: If a token stands for other text there.
        LearnerError: If it takes longer than its limit.
    """
    requests = _Requests(settings, tokenizer)
    scored = TeacherScores.empty(contexts.num_tokens, settings.top_k)
    threads = ThreadPoolExecutor(settings.max_concurrent, thread_name_prefix="teacher")
    try:
        scoring = {
            threads.submit(requests.score, context.token_ids.tolist()): (int(start), context.response_mask)
            for start, context in zip(contexts.segment_start, contexts.segments, strict=True)
        }
        for number, done in enumerate(as_completed(scoring, settings.limit_s), 1):
            start, response_mask = scoring[done]
            scores = [done.result()[place] for place in np.flatnonzero(response_mask)]
            for whole, part in zip(vars(scored).values(), zip(*scores, strict=True), strict=True):
                whole[start : start + len(scores)] = torch.tensor(part)
            if on_progress is not None:
                on_progress(number, len(scoring))
    except TimeoutError:
        raise LearnerError(
            f"the teacher at {settings.base_url} has not scored this rollout in teacher.limit_s = "
            f"{settings.limit_s:g}: raise the limit, or teacher.max_concurrent = {settings.max_concurrent}"
        ) from None
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
        requests.close()
    return scored


class _Requests:
    """Requests to a teacher's server, from any thread."""

    def __init__(self, settings: ServerTeacher, tokenizer: "PreTrainedTokenizerBase") -> None:
        self._settings, self._tokenizer = settings, tokenizer
        self._client = open_client(settings, _ASKER)
        self._letters = dict[int, str | None]()  # of the tokens so far; None where bytes make no character

    def score(self, ids: Sequence[int]) -> list[_Scored]:
        """Return what the server says of each token but the first, of which it says nothing."""
        import openai

        try:
            completion = self._client.completions.create(
                model=self._settings.model,
                prompt=list(ids),
                temperature=0.0,
                extra_body={"prompt_logprobs": self._settings.top_k},
                **{self._settings.limit_parameter: 1},
            )
            given = getattr(completion.choices[0], "prompt_logprobs", None)
            if not isinstance(given, list):
                raise EngineError(
                    f"the server at {self._settings.base_url} returns no prompt_logprobs, so it cannot score the "
                    "policy's tokens: take one that does, such as vLLM's"
                )
            return [_NOTHING, *(self._read(one, number) for one, number in zip(given[1:], ids[1:], strict=True))]
        except StarPOError:
            raise
        except (openai.OpenAIError, *_OUTSIDE_PROTOCOL) as error:
            raise explained(error, self._settings, self._settings.max_retries, "teacher") from None

    def close(self) -> None:
        self._client.close()

    def _read(self, given: dict[str, dict[str, Any]], number: int) -> _Scored:
        entry = given[str(number)]
        logprob, rank, text = float(entry["logprob"]), int(entry["rank"]), entry.get("decoded_token")
        if not -float("inf") < logprob <= 0.0:
            raise LearnerError(
                f"the teacher at {self._settings.base_url} gives token {number} a log-probability of {logprob:g}"
            )
        if isinstance(text, str):
            self._check_text(number, text)
        top_k = self._settings.top_k
        top = sorted((int(one["rank"]), int(name), float(one["logprob"])) for name, one in given.items())[:top_k]
        if len(top) < top_k:
            raise LearnerError(
                f"the teacher at {self._settings.base_url} names {len(top)} of its teacher.top_k = {top_k} most "
                "probable tokens: lower that, or let the server name more (vLLM: --max-logprobs)"
            )
        return logprob, rank == 1, [name for _, name, _ in top], [value for *_, value in top]

    def _check_text(self, number: int, text: str) -> None:
        if number not in self._letters:
            here = str(self._tokenizer.decode([number]))
            self._letters[number] = None if _UNKNOWN in here else letters(here)
        expected = self._letters[number]
        if expected is not None and expected != letters(text):
            raise ConfigError(
                f"the teacher at {self._settings.base_url} has another vocabulary than the policy: token {number} is "
                f"{quoted(str(self._tokenizer.decode([number])))} here and {quoted(text)} there. A teacher scores the "
                "policy's tokens, so it needs the policy's tokenizer: take a model of the same family"
            )
