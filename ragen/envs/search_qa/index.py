"""BM25 over documents, using bm25s: the same ranking in every process, ties in document order."""

import logging
import re
from collections.abc import Sequence

import numpy as np

from starpo.ragen.core.errors import MissingPackageError

_WORD = re.compile(r"\b\w\w+\b")
_K1, _B = 0.9, 0.4  # Pyserini's


class Index:
    """Index that ranks texts by a query: Lucene's BM25 with k1 = 0.9 and b = 0.4, without stemming."""

    def __init__(self, texts: Sequence[str]) -> None:
        """Index the texts.

        Raises:
            MissingPackageError: If bm25s is not installed.
        """
        try:
            import bm25s
        except ImportError as error:
            raise MissingPackageError("search_qa needs the package bm25s: pip install 'starpo[webshop]'") from error
        logging.getLogger("bm25s").setLevel(logging.WARNING)  # it logs every index that it builds
        self._scorer = bm25s.BM25(method="lucene", k1=_K1, b=_B)
        tokenised = [_words(text) for text in texts]
        self._known = {word for words in tokenised for word in words}
        self._scorer.index(tokenised, show_progress=False)

    def search(self, query: str, limit: int) -> list[int]:
        """Return the positions of the best texts that contain a word of the query, best first.

        Args:
            query: Any text; words of one letter are ignored.
            limit: Maximum number of results.
        """
        words = [word for word in _words(query) if word in self._known]
        if not words:
            return []
        scores = self._scorer.get_scores(words)
        best = np.argsort(-scores, kind="stable")[:limit]
        return [int(place) for place in best if scores[place] > 0.0]


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())
