"""Answers against the right ones, as SQuAD's evaluation compares them: exact match, and F1 over words.

answer -> normalised: lower case, no punctuation, no articles, single blanks
"""

import re
import string
from collections import Counter

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalised(text: str) -> str:
    """What is compared. Punctuation is that of ASCII, and goes without leaving a blank: `U.S.` becomes `us`."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def exact_match(answer: str, golds: tuple[str, ...]) -> bool:
    """Is it one of the right answers, once normalised?"""
    return normalised(answer) in {normalised(gold) for gold in golds}


def f1(answer: str, golds: tuple[str, ...]) -> float:
    """Harmonic mean of precision and recall over words, each counted as often as it occurs; the best of the right ones.

    Without a word on either side: 1 if there is none on both, else 0.
    """
    return max(_f1(normalised(answer).split(), normalised(gold).split()) for gold in golds)


def score(answer: str, golds: tuple[str, ...], least: float) -> float:
    """What an answer pays: 1 for an exact match; else its F1, and nothing below `least` (RAGEN-2's SearchQA: 0.3)."""
    if exact_match(answer, golds):
        return 1.0
    shared = f1(answer, golds)
    return shared if shared >= least else 0.0


def _f1(said: list[str], gold: list[str]) -> float:
    if not said or not gold:
        return float(said == gold)
    shared = sum((Counter(said) & Counter(gold)).values())
    return 2 * shared / (len(said) + len(gold))
