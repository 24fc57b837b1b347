"""An external judge: a language model that answers YES or NO, queried once per question in the life of a store.

    prompts -> answers in the store -> (missing ones) server -> stored one by one -> True, False

Each answer is stored as soon as it arrives, so that an interrupted stage resumes from there.
"""

import logging
import re
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Any

from starpo.ragen.core.errors import EngineError
from starpo.ragen.methods.judge.asking import Reading, ask, open_judge
from starpo.ragen.methods.judge.settings import JudgeOptions
from starpo.ragen.store import Store

_log = logging.getLogger(__name__)


def _word_of(text: str) -> str | None:
    last = (text.strip().splitlines() or [""])[-1]
    word = re.sub(r"[^A-Z]", "", last.upper())
    return word if word in ("YES", "NO") else None


_READING = Reading(_word_of, "YES or NO in the last line")


class Judge:
    """Queries one model with one template."""

    def __init__(self, options: JudgeOptions, store: Store, component: str) -> None:
        """Create a judge; it sends no request yet.

        Args:
            options: Model, server and limits.
            store: Keeps the answers.
            component: Reward component of these options, for messages.
        """
        self._options = options
        self._store = store
        self._settings = f"reward.options.{component}"

    def ask(self, prompts: Sequence[str]) -> dict[str, bool]:
        """Return for each prompt whether the answer is YES. Equal prompts are sent once.

        Raises:
            EngineError: If the judge does not answer, or answers neither YES nor NO, within the attempts that its
                settings allow. The message gives the number of stored answers.
            MissingPackageError: If an answer is missing and the package `openai` is not installed.
            StoreError: If answers cannot be read or stored.
        """
        different = list(dict.fromkeys(prompts))
        known = self._stored(different)
        missing = [prompt for prompt in different if prompt not in known]
        if missing:
            _log.info("%s: %d of %d questions are new to the store", self._settings, len(missing), len(different))
            known |= self._new_answers(missing)
        return known

    def _stored(self, prompts: Sequence[str]) -> dict[str, bool]:
        if not prompts:
            return {}
        with ThreadPoolExecutor(min(len(prompts), self._options.max_concurrent)) as threads:
            answers = list(threads.map(lambda prompt: self._store.answers.get(self._question(prompt)), prompts))
        return {prompt: answer == "YES" for prompt, answer in zip(prompts, answers, strict=True) if answer is not None}

    def _new_answers(self, prompts: Sequence[str]) -> dict[str, bool]:
        """Send the prompts concurrently, up to the limit; the first failure stops it, and answers so far are stored."""
        with open_judge(self._options, self._settings) as client:
            threads = ThreadPoolExecutor(self._options.max_concurrent, thread_name_prefix="judge")
            futures = {prompt: threads.submit(self._answer, client, prompt) for prompt in prompts}
            wait(futures.values(), return_when=FIRST_EXCEPTION)
            threads.shutdown(wait=True, cancel_futures=True)
        ended = [future for future in futures.values() if not future.cancelled()]
        errors = [error for future in ended if (error := future.exception()) is not None]
        if errors and not isinstance(errors[0], EngineError):
            raise errors[0]
        if errors:
            raise EngineError(
                f"{errors[0]}. {len(ended) - len(errors)} of {len(prompts)} new answers are kept in {self._store.url}: "
                "run the same command again to continue from there; it asks only for the others"
            ) from None
        return {prompt: future.result() for prompt, future in futures.items()}

    def _answer(self, client: Any, prompt: str) -> bool:
        answer = ask(client, self._options, prompt, _READING, self._settings).word
        self._store.answers.put(self._question(prompt), answer)
        return answer == "YES"

    def _question(self, prompt: str) -> dict[str, Any]:
        """Return everything that an answer depends on, as its cache key; without the server's address and API key."""
        options = self._options
        return {
            "model": options.model,
            "template": options.template,
            "prompt": prompt,
            "max_answer_tokens": options.max_answer_tokens,
        }
