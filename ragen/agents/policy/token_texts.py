"""Which part of a recorded text each token is.

Texts are stored as they were recorded and tokens as they were sampled; nothing is tokenised again. The parts are found
by decoding: they add up to the text, or nothing is known.

    tokenizer -> TokenTexts;   response_ids, response -> parts
"""

from collections.abc import Sequence

from tokenizers import Tokenizer

_LONGEST_CHARACTER = 8
"""Tokens that may share a character, or be decoded only together; where it takes more, the boundaries are unknown."""


class TokenTexts:
    """Cuts texts into tokens."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Cut nothing yet.

        Args:
            tokenizer: That of the policy that made the texts.
        """
        self._tokenizer = tokenizer
        self._pieces: dict[int, str] = {}

    def cut(self, ids: Sequence[int], text: str) -> list[str] | None:
        """The part of the text that each token is.

        A token of which no character can be shown has the part '': the end token, which is not part of a recorded text,
        and all but the last of several tokens that share a character.

        Args:
            ids: Sampled tokens. [num_tokens]
            text: What they were recorded as, without the end token.

        Returns:
            Parts that put together are the text. [num_tokens] None: the tokens do not spell it, so nothing is known.
        """
        pieces = [self._piece(token) for token in ids]
        spelt = "".join(pieces)
        if spelt == text:
            return pieces
        if pieces and spelt == text + pieces[-1]:
            return [*pieces[:-1], ""]
        return self._cut_together(ids, text)

    def _cut_together(self, ids: Sequence[int], text: str) -> list[str] | None:
        """The same for texts that are more than the sum of their tokens, from left to right."""
        parts: list[str] = []
        place = 0
        before: list[int] = []  # some decoders treat the first token in another way, so one is put before
        waiting: list[int] = []
        for token in ids:
            waiting.append(token)
            piece = self._decode(before + waiting)[len(self._decode(before)) :]
            if piece and text.startswith(piece, place):
                parts.append(piece)
                place += len(piece)
                before, waiting = [token], []
            else:
                parts.append("")
            if len(waiting) > _LONGEST_CHARACTER:
                return None
        return parts if place == len(text) else None

    def _piece(self, token: int) -> str:
        if token not in self._pieces:
            self._pieces[token] = self._decode([token])
        return self._pieces[token]

    def _decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(list(ids), skip_special_tokens=False)
