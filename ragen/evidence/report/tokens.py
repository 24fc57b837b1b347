"""How long each token of a recorded text is, as the page counts.

The page shows the text as it was recorded and shades it token by token. So it needs no tokens' texts, only their
lengths.

    tokenizer -> TokenLengths;   response_ids, response -> lengths
"""

from collections.abc import Sequence

from tokenizers import Tokenizer

from starpo.ragen.agents.policy.token_texts import TokenTexts


class TokenLengths:
    """Measures tokens in texts."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Measure nothing yet.

        Args:
            tokenizer: That of the policy that made the texts.
        """
        self._texts = TokenTexts(tokenizer)

    def measure(self, ids: Sequence[int], text: str) -> list[int] | None:
        """How much of the text each token is (see `TokenTexts.cut`).

        Args:
            ids: Sampled tokens. [num_tokens]
            text: What they were recorded as, without the end token.

        Returns:
            UTF-16 code units, as JavaScript counts them, whose sum is that of the text. [num_tokens]
            None: the tokens do not spell this text, so nothing is known.
        """
        parts = self._texts.cut(ids, text)
        return None if parts is None else [_units(part) for part in parts]


def _units(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2
