"""Segments that begin alike, in one row: every different beginning is computed once.

A token's hidden state depends on what stands before it in its context and on nothing else. Members of a group see the
same first prompt, meet the same states and say the same things, so most of an update's tokens follow a beginning that
another segment has too; many segments are equal. A row holds the tokens of a prefix tree's branches side by side, each
beginning once; positions and a mask say what a token follows:

    segments      row         a b c d e f      sees   a b c d e f
    a b c                                           a x
    a b d e       position    0 1 2 2 3 3           b x x
    a b d e                                         c x x x
    a b d f                                         d x x . x
                                                    e x x . x x
                                                    f x x . x . x

Six tokens stand for fifteen. Equal segments share all of their tokens; their losses differ by their advantages alone,
and gradients are sums.

Legend: T tokens of a row, L tokens of a segment.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass
class PrefixRow:
    """Some segments laid out over one row.

    Attributes:
        token_ids: The row's tokens, each beginning once. [T]
        branches: Of each different segment, in the order of the row: how many of its tokens stood there before it, and
            the place of each of its tokens in the row. int64 [L]
        segments: Index of each segment that the row stands for, and of its branch.
    """

    token_ids: list[int] = field(default_factory=list)
    branches: list[tuple[int, np.ndarray]] = field(default_factory=list)
    segments: list[tuple[int, int]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def is_plain(self) -> bool:
        """Does every token follow all that stand before it? Then causal attention is enough."""
        return len(self.branches) == 1

    def positions(self) -> np.ndarray:
        """Of each token in its own context. int64 [T]"""
        positions = np.empty(len(self), dtype=np.int64)
        for num_shared, places in self.branches:
            positions[places[num_shared:]] = np.arange(num_shared, len(places))
        return positions

    def sees(self) -> np.ndarray:
        """Does the token of the first index follow that of the second, or is it that token? bool [T, T]"""
        sees = np.zeros((len(self), len(self)), dtype=bool)
        for num_shared, places in self.branches:
            for depth in range(num_shared, len(places)):
                sees[places[depth], places[: depth + 1]] = True
        return sees


def prefix_rows(token_ids: Sequence[np.ndarray], indices: Iterable[int], max_tokens: int) -> list[PrefixRow]:
    """Lay segments out over rows.

    In the order of their tokens those with the same beginning are neighbours, so a row is a run of that order. Where a
    row ends between two that begin alike, the beginning is computed in both rows.

    Args:
        token_ids: Tokens of all segments of an update, [L] each.
        indices: The segments to lay out.
        max_tokens: Of a row with more than one branch; attention costs each token the length of its row. A longer
            segment has a row of its own; with 0 nothing is shared but by equal segments.

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
    """Tokens that two segments begin with alike."""
    length = min(len(one), len(other))
    differs = np.flatnonzero(one[:length] != other[:length])
    return int(differs[0]) if len(differs) else length
