"""The part of a recorded text that each token spells.

Texts are stored as recorded and tokens as sampled; nothing is tokenised again. The parts are found by decoding; if they
do not concatenate to the text, the result is None.

    tokenizer -> TokenTexts;   response_ids, response -> parts
"""

from collections.abc import Sequence

from tokenizers import Tokenizer

_LONGEST_CHARACTER = 8
"""Maximum number of tokens that share a character or decode only together; beyond it, the boundaries are unknown."""


class TokenTexts:
    """Cuts texts into tokens."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Store the tokenizer.

        Args:
            tokenizer: Tokenizer of the policy that generated the texts.
        """
        self._tokenizer = tokenizer
        self._pieces: dict[int, str] = {}

    def cut(self, ids: Sequence[int], text: str) -> list[str] | None:
        """Return the part of the text that each token spells.

        A token without a character of its own has the part '': the end token, which is not part of a recorded text, and
        all but the last of several tokens that share a character.

        Args:
            ids: Sampled tokens. [num_tokens]
            text: Their recorded text, without the end token.

        Returns:
            Parts that concatenate to the text. [num_tokens] None if the tokens do not spell it.
        """
        pieces = [self._piece(token) for token in ids]
        spelt = "".join(pieces)
        if spelt == text:
            return pieces
        if pieces and spelt == text + pieces[-1]:
            return [*pieces[:-1], ""]
        return self._cut_together(ids, text)

    def _cut_together(self, ids: Sequence[int], text: str) -> list[str] | None:
        """Do the same, from left to right, for texts that differ from the concatenation of their decoded tokens."""
        parts: list[str] = []
        place = 0
        before: list[int] = []  # some decoders treat the first token differently, so one is prepended
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
