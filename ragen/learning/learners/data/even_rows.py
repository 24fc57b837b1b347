"""Rows of similar length, equally many in each of the parts that are computed in parallel."""

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from starpo.ragen.learning.learners.data.prefix_rows import prefix_rows


def even_limit(token_ids: Sequence[np.ndarray], max_tokens: int, num_parts: int) -> int:
    """Find the maximum length of rows at which all parts get equally many, of similar length.

    Args:
        token_ids: Tokens of the segments, [L] each.
        max_tokens: Maximum length of a row.
        num_parts: Number of parts.

    Returns:
        The smallest one at which `prefix_rows` makes no more rows than with `max_tokens`, rounded up to a multiple of
        `num_parts`.
    """

    def num_rows(limit: int) -> int:
        return len(prefix_rows(token_ids, range(len(token_ids)), limit))

    allowed = -(-num_rows(max_tokens) // num_parts) * num_parts
    return bisect_left(range(max_tokens), True, key=lambda limit: num_rows(limit) <= allowed)
