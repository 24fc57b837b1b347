"""Tokens of a recorded text in the units of the page: the length of each, and what an update noted of it.

The page shows the recorded text and shades it token by token. It therefore needs only the lengths of tokens, not their
texts.

    tokenizer -> TokenLengths;   response_ids, response -> lengths        row of trained_tokens -> trained_numbers
"""

from collections.abc import Mapping, Sequence
from typing import Any

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


def trained_numbers(row: Mapping[str, Any] | None, num_tokens: int) -> dict[str, Any] | None:
    """Return what an update noted of the first tokens of a turn.

    Args:
        row: Row of dataset `trained_tokens`; None if there is none.
        num_tokens: Number of tokens that the page shows.

    Returns:
        Name of a shade -> the number of each token, or one number if all have the same; None if there is none.
    """
    if row is None:
        return None
    numbers = {
        "advantage": row["advantages"],
        "ratio": row["ratios"],
        "clipped": row["clip_fractions"],
        "entropy": row["entropies"],
        "masked": [float(not has_loss) for has_loss in row["has_loss"]],
    }
    return {name: _merged([float(f"{value:.4g}") for value in values[:num_tokens]]) for name, values in numbers.items()}


def _merged(values: list[float]) -> list[float] | float | None:
    if not values:
        return None
    return values[0] if len(set(values)) == 1 else values
