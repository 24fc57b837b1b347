"""Scoring 'judge' of `questions`: a language model says whether an answer is right, given the question and its answer.

question, right answers, answer -> prompt -> server -> `VERDICT: correct` in the last line -> 1

The three stand in the prompt as JSON strings, so that an answer cannot pose as a verdict or an instruction.
"""

import os
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from starpo.ragen.core.redaction import without_secrets
from starpo.ragen.envs.questions.question import FileQuestion
from starpo.ragen.envs.questions.scoring import Scored
from starpo.ragen.methods.judge.asking import Reading, ask, open_judge
from starpo.ragen.methods.judge.settings import JudgeScoringOptions
from starpo.ragen.methods.judge.template import as_string, filled_in

_SETTINGS = "environment.scoring_options"
_VERDICT = re.compile(r"[*_` ]*VERDICT:[*_` ]*(correct|incorrect)[*_`. ]*", re.IGNORECASE)
_LONGEST_KEPT = 20_000


def score(question: FileQuestion, answer: str, options: Mapping[str, Any], limit_s: float) -> Scored:
    """Ask the judge whether an answer is right. A registered scoring; see `ragen.core.registry.SCORINGS`.

    Args:
        question: The question, with its right answers.
        answer: The answer, untrusted.
        options: `JudgeScoringOptions`.
        limit_s: Time limit in seconds, all retries included.

    Returns:
        1 for the verdict 'correct', 0 for 'incorrect'; with the verdict, the judge's whole text (its last 20,000
        characters if it is longer) and the number of requests.

    Raises:
        EngineError: If the judge cannot be reached, fails, or gives no verdict, in all attempts.
        MissingPackageError: If the package `openai` is not installed.
    """
    judge = JudgeScoringOptions.model_validate(options)
    facts = {
        "question": as_string(question.text),
        "references": ", ".join(map(as_string, question.answers)),
        "answer": as_string(answer),
    }
    given = ask(_client(judge, os.getpid()), judge, filled_in(judge.template, facts), _READING, _SETTINGS, limit_s)
    text = without_secrets(given.text)[-_LONGEST_KEPT:]
    return Scored(float(given.word == "correct"), {"verdict": given.word, "text": text, "requests": given.num_requests})


def verdict(text: str) -> str | None:
    """Return 'correct' or 'incorrect' if the last line of a judge's text is such a verdict and nothing else."""
    match = _VERDICT.fullmatch((text.strip().splitlines() or [""])[-1].strip())
    return match[1].lower() if match else None


_READING = Reading(verdict, "a last line 'VERDICT: correct' or 'VERDICT: incorrect'")


@lru_cache(maxsize=8)
def _client(options: JudgeScoringOptions, process: int) -> Any:
    """Return a client that all episodes of this process share; it stays open as long as the process lives."""
    return open_judge(options, "scoring 'judge'")
