"""BM25 search as in Lucene, with WebShop's k1 = .9 and b = .4; without stemming and without stop words.

catalogue -> index (bm25s) -> words -> positions of the 50 best products
"""

import logging
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from starpo.ragen.core.errors import MissingPackageError

MAX_RESULTS = 50
_WORD = re.compile(r"\b\w\w+\b")
_K1, _B = 0.9, 0.4
_KEPT_SEARCHES = 4096
_DECIMALS, _LEAST = 4, 0.0001
"""Scores are rounded to `_DECIMALS`; products that score below `_LEAST` are not found."""


def words(text: str) -> list[str]:
    """Return the words of at least two letters or digits, in lower case; others are ignored."""
    return _WORD.findall(text.lower())


def needed_packages() -> tuple[Any, Any]:
    """Return the modules `bm25s` and `rapidfuzz.fuzz`.

    Raises:
        MissingPackageError: If one of them is not installed.
    """
    try:
        import bm25s
        from rapidfuzz import fuzz
    except ImportError as error:
        raise MissingPackageError(
            f"the environment webshop searches with bm25s and compares with rapidfuzz; {error.name} is not installed: "
            "pip install 'starpo[webshop]'"
        ) from error
    logging.getLogger("bm25s").setLevel(logging.WARNING)  # it logs every index that it builds
    return bm25s, fuzz


class ProductIndex:
    """A search index over texts."""

    def __init__(self, texts: Sequence[str], names: Sequence[str]) -> None:
        """Index the texts; ties in score are ordered by name.

        Args:
            texts: At least one text.
            names: One name per text, all different.
        """
        bm25s, _ = needed_packages()
        self._order = np.array(sorted(range(len(names)), key=names.__getitem__))
        self._scorer = bm25s.BM25(method="lucene", k1=_K1, b=_B)
        self._scorer.index([words(texts[place]) or [""] for place in self._order], show_progress=False)
        self.search = lru_cache(_KEPT_SEARCHES)(self._search)

    def _search(self, query: str) -> tuple[int, ...]:
        """Return the positions of the texts that contain a word of the query, best first; at most 50."""
        known = self._scorer.get_tokens_ids(words(query))
        if not known:
            return ()
        scores = np.round(self._scorer.get_scores_from_ids(known), _DECIMALS)  # ties stay ties on any machine
        least = max(np.partition(scores, -MAX_RESULTS)[-MAX_RESULTS], _LEAST) if len(scores) > MAX_RESULTS else _LEAST
        positions = np.flatnonzero(scores >= least)
        best = positions[np.argsort(-scores[positions], kind="stable")[:MAX_RESULTS]]
        return tuple(int(place) for place in self._order[best])
