"""Token ids of a conversation's text, as the tokenizer gives them for the whole of it.

    the template's text, messages, sampled ids -> `PromptWriter` -> ids

A tokenizer cuts a text at its special tokens, the marks, and encodes what lies between two of them as one piece. So do
prompts here: a message's text is encoded together with the template's text around it, up to the nearest marks. This
matters to tokenizers that join white space, or that begin a piece with a sign of their own (SentencePiece's for a
space). Only the template's text has marks: in messages they are split, so that they stay text and cannot end a message
or forge a turn.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from functools import lru_cache

from tokenizers import AddedToken
from transformers import PreTrainedTokenizerBase

_CACHED_PIECES = 8192  # members of a group see the same texts, and so do later turns in which nothing changed
_SENTINEL = "\ufdd0\ufdd1"  # two of Unicode's noncharacters
_THOUGHT_TAGS = ("<think>", "</think>")


class ChatEncoder:
    """Encodes text for one tokenizer and one chat template. May be shared between threads."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, template_texts: Iterable[str]) -> None:
        """Find the marks.

        Args:
            tokenizer: The policy's; it is not changed.
            template_texts: What the template writes around messages. Every token of the vocabulary's added ones that
                occurs there is a mark: the role markers of some models are not special. `<think>` and `</think>` are
                none, since responses contain them.
        """
        template_ids = {
            number for text in template_texts for number in tokenizer.encode(text, add_special_tokens=False)
        }
        added = tokenizer.added_tokens_decoder
        plain = {added[number].content for number in template_ids & added.keys() if not added[number].special}
        markers = sorted(plain.difference(_THOUGHT_TAGS))
        # Splitting of special tokens is tokenizer state: a private copy keeps other threads from changing it.
        self._tokenizer = deepcopy(tokenizer)
        made = [AddedToken(content, special=True, normalized=False) for content in markers]
        self._tokenizer.add_tokens(made, special_tokens=True)
        self._tokenizer.add_tokens([AddedToken(_SENTINEL, special=False, normalized=False)])
        self._sentinel_id = self._tokenizer.convert_tokens_to_ids(_SENTINEL)
        self.marks = {
            token.content: (number, token)
            for number, token in self._tokenizer.added_tokens_decoder.items()
            if token.special
        }
        contents = sorted(self.marks, key=len, reverse=True)
        self._mark = re.compile("|".join(map(re.escape, contents)) or r"(?!)")
        self._cached_piece = lru_cache(_CACHED_PIECES)(self._piece)

    def writer(
        self, last_id: int | None = None, *, is_first: bool = False, should_cache: bool = True
    ) -> "PromptWriter":
        """Begin a prompt, or what is appended to a context.

        Args:
            last_id: Last id of the context, if it has ids. A mark of this id with which the template's text begins is
                not repeated.
            is_first: Whether a conversation begins here.
            should_cache: Whether to keep the ids of pieces; not for texts that may be long and rarely come again.
        """
        return PromptWriter(self, last_id, is_first, should_cache)

    def encode(self, text: str, *, is_first: bool = False) -> list[int]:
        """Return the ids of a text of the template, alone."""
        writer = self.writer(is_first=is_first)
        writer.template(text)
        return writer.finish()

    def cut(self, text: str) -> Iterator[tuple[str, str]]:
        """Yield the template's text as (text, mark after it); the last has no mark."""
        place = 0
        for match in self._mark.finditer(text):
            yield text[place : match.start()], match[0]
            place = match.end()
        yield text[place:], ""

    def piece(self, text: str, *, is_first: bool, should_cache: bool) -> tuple[int, ...]:
        """Return the ids of a text between two marks, or between the beginning of a conversation and its first mark."""
        return (self._cached_piece if should_cache else self._piece)(text, is_first)

    def _piece(self, text: str, is_first: bool) -> tuple[int, ...]:
        if is_first:
            return self._ids(text)
        before, *ids = self._ids(_SENTINEL + text.replace(_SENTINEL, "\ufffd"))
        return tuple(ids) if before == self._sentinel_id else self._ids(text)  # some tokenizers split added tokens too

    def _ids(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True))


class PromptWriter:
    """Ids of a prompt, from left to right.

    Attributes:
        ids: The ids up to the last mark or sampled id; `finish` returns all.
    """

    def __init__(self, encoder: ChatEncoder, last_id: int | None, is_first: bool, should_cache: bool) -> None:
        self.ids: list[int] = []
        self._encoder = encoder
        self._should_cache = should_cache
        self._is_first = is_first
        self._last_id = last_id
        self._pending = ""
        self._mark: AddedToken | None = None

    def template(self, text: str) -> None:
        """Append text that the template writes."""
        for before, content in self._encoder.cut(text):
            self._pending += before
            if content:
                number, mark = self._encoder.marks[content]
                repeats = number == self._last_id and not self._pending
                self._flush(mark)
                self.ids += [] if repeats else [number]
                self._mark, self._last_id, self._is_first = mark, None, False

    def message(self, text: str) -> None:
        """Append text that others wrote."""
        self._pending += text

    def tokens(self, ids: Sequence[int]) -> int:
        """Append ids as they are, and return the index of the first."""
        self._flush()
        start = len(self.ids)
        self.ids += ids
        self._last_id = ids[-1] if ids else None
        self._is_first = False
        return start

    def finish(self) -> list[int]:
        """Return all ids."""
        self._flush()
        return self.ids

    def _flush(self, mark: AddedToken | None = None) -> None:
        """Encode what is pending before this mark. Some marks take the white space beside them."""
        text = self._pending.lstrip() if self._mark is not None and self._mark.rstrip else self._pending
        text = text.rstrip() if mark is not None and mark.lstrip else text
        if text:
            self.ids += self._encoder.piece(text, is_first=self._is_first, should_cache=self._should_cache)
            self._last_id, self._is_first = None, False
        self._pending, self._mark = "", None
