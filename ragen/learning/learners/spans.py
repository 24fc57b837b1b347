"""What each response token is part of: the reasoning, the answer, or the format around them.

    response_ids, response, think, answer --tokenizer--> kinds

Found from stored columns, so that any stored rollout can be learned from with any token mask (VAGEN, TRICO).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from starpo.ragen.agents.policy.token_texts import TokenTexts

if TYPE_CHECKING:
    from tokenizers import Tokenizer

UNKNOWN, FORMAT, THINK, ANSWER = range(4)
KINDS = {"think": THINK, "answer": ANSWER, "format": FORMAT}
"""By the names used in settings."""
_THINK_TAG, _ANSWER_TAG, _CALL_TAG = "<think>", "<answer>", "<tool_call>"


class Spans:
    """Tells tokens apart."""

    def __init__(self, tokenizer: "Tokenizer") -> None:
        """Tell none apart yet.

        Args:
            tokenizer: That of the policy that made the responses.
        """
        self._texts = TokenTexts(tokenizer)

    def kinds(self, ids: Sequence[int], response: str, think: str | None, answer: str | None) -> np.ndarray | None:
        """What each token of a response is part of.

        A token belongs where its first character does. A malformed response, of which neither reasoning nor answer can
        be told apart, is format as a whole; so is the end token.

        Args:
            ids: `response_ids` of `turns`.
            response: As stored.
            think: As stored.
            answer: As stored.

        Returns:
            int8 [num_tokens], of FORMAT, THINK, ANSWER. None: the tokens do not spell the response.
        """
        parts = self._texts.cut(ids, response)
        if parts is None:
            return None
        kind_of = np.full(len(response) + 1, FORMAT, dtype=np.int8)
        answer_tag = _ANSWER_TAG if _ANSWER_TAG in response else _CALL_TAG
        for text, tag, kind in ((think, _THINK_TAG, THINK), (answer, answer_tag, ANSWER)):
            if text is not None:
                start = response.find(tag) + len(tag) if tag in response else 0  # else the prompt held the tag
                kind_of[start : start + len(text)] = kind
        starts = np.cumsum([0, *map(len, parts[:-1])]) if parts else np.empty(0, dtype=np.int64)
        return kind_of[starts]
