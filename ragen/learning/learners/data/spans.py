"""The part of the response that each token belongs to: the reasoning, the answer, or the format around them.

    response_ids, response, think, answer --tokenizer--> kinds

Computed from stored columns, so that any stored rollout can be trained on with any token mask (VAGEN, TRICO).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tokenizers import Tokenizer

UNKNOWN, FORMAT, THINK, ANSWER = range(4)
KINDS = {"think": THINK, "answer": ANSWER, "format": FORMAT}
"""Name used in settings -> kind."""
_THINK_TAG, _CLOSING_TAGS = "<think>", ("</answer>", "</tool_call>")


class Spans:
    """Classifies response tokens by the part of the response they belong to."""

    def __init__(self, tokenizer: "Tokenizer") -> None:
        """Create a classifier.

        Args:
            tokenizer: Tokenizer of the policy that sampled the responses.
        """
        from starpo.ragen.agents.policy.token_texts import TokenTexts

        self._texts = TokenTexts(tokenizer)

    def kinds(self, ids: Sequence[int], response: str, think: str | None, answer: str | None) -> np.ndarray | None:
        """Classify the tokens of a response.

        A token takes the kind of its first character. The end token is FORMAT, and so is every token of a malformed
        response, which has neither reasoning nor answer.

        Args:
            ids: `response_ids` of `turns`.
            response: As stored.
            think: As stored.
            answer: As stored.

        Returns:
            int8 [num_tokens] of FORMAT, THINK, ANSWER. None if the tokens do not decode to the response.
        """
        parts = self._texts.cut(ids, response)
        if parts is None:
            return None
        kind_of = np.full(len(response) + 1, FORMAT, dtype=np.int8)
        if think is not None:
            # without the opening tag, the prompt ends with it
            start = response.find(_THINK_TAG) + len(_THINK_TAG) if _THINK_TAG in response else 0
            kind_of[start : start + len(think)] = THINK
        if answer is not None:
            end = _end_of_answer(response, answer)
            kind_of[end - len(answer) : end] = ANSWER
        starts = np.cumsum([0, *map(len, parts[:-1])]) if parts else np.empty(0, dtype=np.int64)
        return kind_of[starts]


def _end_of_answer(response: str, answer: str) -> int:
    """Return where the answer ends: at the closing tag or, in a response that was imported, at the end.

    It is not searched for from the front, because an opening tag may be part of the prompt, or of the answer's text.
    """
    body = response.rstrip()
    for tag in _CLOSING_TAGS:
        if body.endswith(answer + tag):
            return len(body) - len(tag)
    return len(response)
