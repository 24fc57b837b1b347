"""Length of each token of a recorded text, in the units of the page.

The page shows the recorded text and shades it token by token. It therefore needs only the lengths of tokens, not their
texts.

    tokenizer -> TokenLengths;   response_ids, response -> lengths
"""

from collections.abc import Sequence

from tokenizers import Tokenizer

from starpo.ragen.agents.policy.token_texts import TokenTexts


class TokenLengths:
    """Measures the lengths of tokens in texts."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Create the measure for a tokenizer.

        Args:
            tokenizer: Tokenizer of the policy that sampled the texts.
        """
        self._texts = TokenTexts(tokenizer)

    def measure(self, ids: Sequence[int], text: str) -> list[int] | None:
        """Measure the part of the text that each token covers (see `TokenTexts.cut`).

        Args:
            ids: Sampled tokens. [num_tokens]
            text: Recorded text, without the end token.

        Returns:
            Lengths in UTF-16 code units, as in JavaScript, which sum up to that of the text. [num_tokens]
            None if the tokens do not decode to this text.
        """
        parts = self._texts.cut(ids, text)
        return None if parts is None else [utf16_units(part) for part in parts]


def utf16_units(text: str) -> int:
    """Return the length of a text in UTF-16 code units, as in JavaScript."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2
