"""Where each token of a recorded text begins and ends.

The page shows the text as it was recorded and shades it token by token. So it needs no tokens' texts, only their
lengths, and those are found by decoding: the lengths of a response add up to its text, or there are none.

    tokenizer -> TokenLengths;   response_ids, response -> lengths
"""

from collections.abc import Sequence

from tokenizers import Tokenizer

_LONGEST_CHARACTER = 8
"""Tokens that may share a character, or be decoded only together; where it takes more, the boundaries are unknown."""


class TokenLengths:
    """Measures tokens in texts.

    Args:
        tokenizer: That of the policy that made the texts.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._pieces: dict[int, tuple[str, int]] = {}

    def measure(self, ids: Sequence[int], text: str) -> list[int] | None:
        """How much of the text each token is.

        A token of which no character can be shown has length 0: the end token, which is not part of a recorded text,
        and all but the last of several tokens that share a character.

        Args:
            ids: Sampled tokens. [num_tokens]
            text: What they were recorded as, without the end token.

        Returns:
            UTF-16 code units, as JavaScript counts them, whose sum is that of the text. [num_tokens]
            None: the tokens do not spell this text, so nothing is known.
        """
        pieces = [self._piece(token) for token in ids]
        spelt = "".join(piece for piece, _ in pieces)
        if spelt == text:
            return [length for _, length in pieces]
        if pieces and spelt == text + pieces[-1][0]:
            return [*(length for _, length in pieces[:-1]), 0]
        return self._measure_together(ids, text)

    def _measure_together(self, ids: Sequence[int], text: str) -> list[int] | None:
        """The same for texts that are more than the sum of their tokens, from left to right."""
        lengths: list[int] = []
        place = 0
        before: list[int] = []  # some decoders treat the first token in another way, so one is put before
        waiting: list[int] = []
        for token in ids:
            waiting.append(token)
            piece = self._decode(before + waiting)[len(self._decode(before)) :]
            if piece and text.startswith(piece, place):
                lengths.append(_units(piece))
                place += len(piece)
                before, waiting = [token], []
            else:
                lengths.append(0)
            if len(waiting) > _LONGEST_CHARACTER:
                return None
        return lengths if place == len(text) else None

    def _piece(self, token: int) -> tuple[str, int]:
        if token not in self._pieces:
            text = self._decode([token])
            self._pieces[token] = text, _units(text)
        return self._pieces[token]

    def _decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(list(ids), skip_special_tokens=False)


def _units(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2
