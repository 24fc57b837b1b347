"""A policy made for recorded conversations: small, with random weights, and with a vocabulary of their words.

    turns, the tokenizer that recorded them -> `make_recorded_tokenizer` -> `respell` -> the same turns in its tokens

An agent framework's prompt is mostly the same in all conversations: the declarations of tools, instructions. Such a
line is one token, so that a context is short; so is what the chat template writes around a call. Words and digits are
tokens of their own, so that they can be copied from one place to another.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING, cast

import pyarrow as pa
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from starpo.ragen.agents.policy.tokenizer import END_OF_TEXT, NO_CLASS, TURN_END, TURN_START

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

_PIECE = r"\p{L}[\p{L}_]*|\d|[^\p{L}\d]+"
"""A word or name, a digit, or what stands between them."""
_SPECIAL = (END_OF_TEXT, TURN_START, TURN_END)
_MARKS = (
    '<tool_call>\n{"name": "', '", "arguments": {', "}\n</tool_call>", "<tool_response>\n", "\n</tool_response>",
    "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>", "<answer>",
    "</answer>",
)  # fmt: skip
"""What templates write around calls, results and reasoning; not special, since it is part of a response's text."""
_MIN_LINE, _MAX_PIECES = 16, 8000


def make_recorded_tokenizer(turns: pa.Table, old: "PreTrainedTokenizerBase") -> "PreTrainedTokenizerFast":
    """Build a tokenizer whose vocabulary is that of recorded conversations.

    Args:
        turns: Dataset `turns`.
        old: The tokenizer that recorded them, with the special tokens of ChatML.

    Returns:
        A tokenizer with the chat template of `old`. Every byte is in it, so any text can be encoded.
    """
    from transformers import PreTrainedTokenizerFast

    texts = [str(old.decode(ids)) for name in ("prompt_ids", "response_ids") for ids in turns[name].to_pylist()]
    lines = _common_lines(_openings(turns, old))
    marks = (*lines, *_MARKS)
    pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECE), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    between = re.compile("|".join(map(re.escape, (*marks, *_SPECIAL))))
    counts = Counter(part for text in texts for part in between.split(text))
    pieces: Counter[str] = Counter()
    for part, count in counts.items():
        for piece, _ in pre_tokenizer.pre_tokenize_str(part):
            pieces[piece] += count
    common = sorted(pieces, key=lambda piece: (-pieces[piece], piece))[:_MAX_PIECES]
    vocabulary = dict.fromkeys([*sorted(pre_tokenizers.ByteLevel.alphabet()), *common])
    # Without merges, only whole pieces are tokens; any other word is spelled in bytes.
    bpe = Tokenizer(models.BPE(vocab={piece: n for n, piece in enumerate(vocabulary)}, merges=[], ignore_merges=True))
    bpe.pre_tokenizer = pre_tokenizer
    bpe.decoder = decoders.ByteLevel()
    bpe.add_special_tokens([AddedToken(token, normalized=False) for token in _SPECIAL])
    bpe.add_tokens([AddedToken(mark, special=False, normalized=False) for mark in marks])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token=TURN_END,
        pad_token=END_OF_TEXT,
        additional_special_tokens=[TURN_START],
        clean_up_tokenization_spaces=False,
        auto_map={"AutoTokenizer": [NO_CLASS, None]},
    )
    tokenizer.chat_template = old.chat_template
    return tokenizer


def respell(turns: pa.Table, old: "PreTrainedTokenizerBase", new: "PreTrainedTokenizerBase") -> pa.Table:
    """Return the same turns in the tokens of another tokenizer; special tokens stay those, and text stays text."""
    both = (cast(list[int], tokenizer.convert_tokens_to_ids(list(_SPECIAL))) for tokenizer in (old, new))
    special = dict(zip(*both, strict=True))

    def spelled(ids: list[int]) -> Iterator[int]:
        start = 0
        for place, number in enumerate([*ids, -1]):
            if number in special or number < 0:
                text = str(old.decode(ids[start:place], clean_up_tokenization_spaces=False))
                yield from new.encode(text, add_special_tokens=False, split_special_tokens=True)
                yield from (special[number],) if number in special else ()
                start = place + 1

    for name in ("prompt_ids", "response_ids"):
        place = turns.schema.get_field_index(name)
        ids = [list(spelled(ids)) for ids in turns[name].to_pylist()]
        turns = turns.set_column(place, turns.schema.field(place), pa.array(ids, turns.schema.field(place).type))
    return turns


def _openings(turns: pa.Table, old: "PreTrainedTokenizerBase") -> list[str]:
    starts = turns.filter(turns["is_context_start"])["prompt_ids"].to_pylist()
    return [str(old.decode(ids)) for ids in starts if ids]


def _common_lines(openings: Sequence[str]) -> list[str]:
    """Return the lines that every conversation begins with, longest first."""
    lines = reduce(set.intersection, (set(opening.split("\n")) for opening in openings)) if openings else set()
    plain = (line for line in lines if len(line) >= _MIN_LINE and not any(token in line for token in _SPECIAL))
    return sorted(plain, key=lambda line: (-len(line), line))
