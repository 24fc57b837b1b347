"""Scoring of answers against the gold answers, as in SQuAD's evaluation: exact match, and F1 over words.

answer -> normalised: lower case, no punctuation, no articles, single spaces
"""

import re
import string
from collections import Counter

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalised(text: str) -> str:
    """Normalise an answer for comparison. ASCII punctuation is removed without leaving a space: `U.S.` becomes `us`."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def exact_match(answer: str, golds: tuple[str, ...]) -> bool:
    """Whether the normalised answer equals one of the normalised gold answers."""
    return normalised(answer) in {normalised(gold) for gold in golds}


def f1(answer: str, golds: tuple[str, ...]) -> float:
    """Harmonic mean of precision and recall over words, counted with multiplicity; the maximum over the gold answers.

    If either side has no words: 1 if both have none, else 0.
    """
    return max(_f1(normalised(answer).split(), normalised(gold).split()) for gold in golds)


def score(answer: str, golds: tuple[str, ...], least: float) -> float:
    """Reward of an answer: 1 for an exact match; else F1, or 0 if that is below `least` (RAGEN-2's SearchQA: 0.3)."""
    if exact_match(answer, golds):
        return 1.0
    shared = f1(answer, golds)
    return shared if shared >= least else 0.0


def _f1(answer: list[str], gold: list[str]) -> float:
    if not answer or not gold:
        return float(answer == gold)
    shared = sum((Counter(answer) & Counter(gold)).values())
    return 2 * shared / (len(answer) + len(gold))
