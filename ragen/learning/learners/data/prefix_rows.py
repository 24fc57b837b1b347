"""Segments with a common prefix in one row: every distinct prefix is computed once.

The hidden state of a token depends only on the tokens before it in its context. Members of a group see the same first
prompt, meet the same states and give the same responses, so most tokens of an update follow a prefix that another
segment shares; many segments are identical. A row is the prefix tree of its segments in depth-first order, each prefix
once. A position and an end for each token define what precedes it: token i sees token j if j <= i < end of j.

    segments      row         a b c d e f      sees   a b c d e f
    a b c                                           a x
    a b d e       position    0 1 2 2 3 3           b x x
    a b d e       end         6 6 3 6 5 6           c x x x
    a b d f                                         d x x . x
                                                    e x x . x x
                                                    f x x . x . x

Six tokens replace fifteen. Identical segments share all of their tokens; their losses differ only in the advantages,
and gradients are sums.

Legend: T tokens of a row, L tokens of a segment.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np


@dataclass
class PrefixRow:
    """Segments laid out in one row.

    Attributes:
        token_ids: Tokens of the row, each prefix once. [T]
        branches: For each distinct segment, in the order of the row: the number of its tokens shared with earlier
            branches, and the position of each of its tokens in the row. int64 [L]
        segments: (index of the segment, index of its branch) of each segment in the row.
    """

    token_ids: list[int] = field(default_factory=list)
    branches: list[tuple[int, np.ndarray]] = field(default_factory=list)
    segments: list[tuple[int, int]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def is_plain(self) -> bool:
        """Whether every token attends to all tokens before it, so that plain causal attention is enough."""
        return len(self.branches) == 1

    def positions(self) -> np.ndarray:
        """Return the position of each token in its own context. int64 [T]"""
        positions = np.empty(len(self), dtype=np.int64)
        for num_shared, places in self.branches:
            positions[places[num_shared:]] = np.arange(num_shared, len(places))
        return positions

    def ends(self) -> np.ndarray:
        """Return where each token's branch ends: token i sees token j if j <= i < ends[j]. int64 [T]

        The row is the prefix tree in depth-first order, so the tokens after token j that see it follow it directly.
        """
        ends = np.full(len(self), len(self), dtype=np.int64)
        for (_, before), (num_shared, places) in pairwise(self.branches):
            ends[before[num_shared:]] = places[num_shared]
        return ends


def prefix_rows(token_ids: Sequence[np.ndarray], indices: Iterable[int], max_tokens: int) -> list[PrefixRow]:
    """Lay segments out in rows.

    Segments sorted by their tokens have common prefixes next to each other, so a row is a slice of that order. If a row
    ends between two segments with a common prefix, both rows compute the prefix.

    Args:
        token_ids: Tokens of all segments of an update, [L] each.
        indices: The segments to lay out.
        max_tokens: Maximum length of a row with more than one branch, because a token's attention costs the length of
            its row. A longer segment gets a row of its own; with 0, only identical segments share a row.

    Returns:
        Rows that hold every segment of `indices` once.
    """
    rows: list[PrefixRow] = []
    before = np.empty(0, dtype=np.int64)
    for index in sorted(map(int, indices), key=lambda index: token_ids[index].tobytes()):
        tokens = token_ids[index]
        if rows and len(tokens) == len(before) and (tokens == before).all():
            rows[-1].segments.append((index, len(rows[-1].branches) - 1))
            continue
        num_shared = _num_equal(before, tokens)
        if not rows or len(rows[-1]) + len(tokens) - num_shared > max_tokens:
            rows.append(PrefixRow())
            num_shared = 0
        row = rows[-1]
        start = len(row)
        shared = row.branches[-1][1][:num_shared] if num_shared else np.empty(0, dtype=np.int64)
        places = np.concatenate([shared, np.arange(start, start + len(tokens) - num_shared)])
        row.token_ids.extend(tokens[num_shared:].tolist())
        row.segments.append((index, len(row.branches)))
        row.branches.append((num_shared, places))
        before = tokens
    return rows


def _num_equal(one: np.ndarray, other: np.ndarray) -> int:
    """Length of the common prefix of two segments."""
    length = min(len(one), len(other))
    differs = np.flatnonzero(one[:length] != other[:length])
    return int(differs[0]) if len(differs) else length
