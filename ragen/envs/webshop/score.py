"""Score of a purchase (WebShop, `web_agent_site/engine/goal.py`).

score = (attributes met + options met + price met) / (attributes + options + 1) * type

type: 0 if the title score is 0; else .1 if it is below .1; else 1 if the queries are equal, or at least two categories
      are shared, or the title score is above .2; else .5
title score = |nouns in both titles| / |nouns of the goal's title|, the latter with repetitions; .2 if there are none
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib import import_module
from typing import Any

from starpo.ragen.core.errors import MissingPackageError
from starpo.ragen.envs.webshop.goals import Goal
from starpo.ragen.envs.webshop.product import Product
from starpo.ragen.envs.webshop.search import needed_packages
from starpo.ragen.envs.webshop.vocabulary import COLOURS, NOUNS

Nouns = Callable[[str], tuple[str, ...]]
"""Function from a title to its nouns, in lower case, with repetitions."""

_ENOUGH = 85
_TITLE_MATCH, _TITLE_POOR, _TITLE_UNKNOWN = 0.2, 0.1, 0.2
_MIN_SHARED_CATEGORIES = 2
_MIN_NOUN = 3
_NO_NOUNS = frozenset(["and", "are", "for", "from", "into", "its", "not", "our", "per", "that", "the", "this", "with"])
_SPACY_MODEL = "en_core_web_sm"


@dataclass(frozen=True, slots=True)
class PurchaseScore:
    """Score of a purchase and its parts.

    Attributes:
        total: Total score, 0 to 1.
        type: Factor for the kind of product.
        title: Share of the goal's nouns in the title.
        attributes: Number of the goal's attributes that are met.
        options: Number of its options that are met.
        is_price_met: Whether the price is at or below the limit.
    """

    total: float
    type: float
    title: float
    attributes: int
    options: int
    is_price_met: bool


def score(product: Product, price: float, chosen: Sequence[str], goal: Goal, nouns: Nouns) -> PurchaseScore:
    """Score a purchase.

    Args:
        product: The purchased product.
        price: Its price in dollars.
        chosen: Chosen values of options.
        goal: The goal of the episode.
        nouns: Extracts the nouns of a title.
    """
    title = title_score(product.title, goal.title, nouns)
    kind = type_factor(product, goal, title)
    attributes, options = attributes_met(product, goal.attributes), options_met(chosen, goal.options)
    is_price_met = price <= goal.price_limit
    share = (attributes + options + is_price_met) / (len(goal.attributes) + len(goal.options) + 1)
    return PurchaseScore(share * kind, kind, title, attributes, options, is_price_met)


def title_score(bought: str, wanted: str, nouns: Nouns) -> float:
    """Fraction of the wanted title's nouns that also occur in the bought one."""
    goal_nouns = nouns(wanted)
    return len(set(nouns(bought)) & set(goal_nouns)) / len(goal_nouns) if goal_nouns else _TITLE_UNKNOWN


def type_factor(product: Product, goal: Goal, title: float) -> float:
    """Factor that penalises buying a different kind of product."""
    if title == 0.0:
        return 0.0
    if title < _TITLE_POOR:
        return 0.1
    is_shared = len(set(product.categories) & set(goal.categories)) >= _MIN_SHARED_CATEGORIES
    return 1.0 if product.query == goal.query or is_shared or title > _TITLE_MATCH else 0.5


def attributes_met(product: Product, wanted: Sequence[str]) -> int:
    """Count wanted attributes that fuzzily match one of the product's or occur in its title, bullets or description."""
    alike = _matcher()
    texts = [text.lower() for text in (product.title, " ".join(product.bullets), product.description)]
    return sum(
        any(alike(product_attribute, attribute) > _ENOUGH for product_attribute in product.attributes)
        or any(attribute.lower() in text for text in texts)
        for attribute in wanted
    )


def options_met(chosen: Sequence[str], wanted: Sequence[str]) -> int:
    """Count the wanted options that fuzzily match a chosen one, with colours reduced to their plain names."""
    alike = _matcher()
    plain = [plain_colour(value.lower()) for value in chosen]
    return sum(any(alike(value, plain_colour(option.lower())) > _ENOUGH for value in plain) for option in wanted)


def _matcher() -> Callable[[str, str], float]:
    """Return WebShop's matcher: it ignores case and punctuation and compares the sets of words of two texts."""
    _, fuzz = needed_packages()
    from rapidfuzz.utils import default_process

    return partial(fuzz.token_set_ratio, processor=default_process)


def plain_colour(value: str) -> str:
    """Return the first of `COLOURS` that occurs in a value; the value itself if there is none."""
    return next((colour for colour in COLOURS if colour in value), value)


def listed_nouns(title: str) -> tuple[str, ...]:
    """Return the nouns of a title from the synthetic catalogue."""
    return tuple(word for word in title.lower().split() if word in NOUNS)


@lru_cache(65_536)
def guessed_nouns(title: str) -> tuple[str, ...]:
    """Return the purely alphabetic words of at least three letters that are not function words."""
    parts = "".join(sign if sign.isalnum() else " " for sign in title.lower()).split()
    return tuple(word for word in parts if word.isalpha() and len(word) >= _MIN_NOUN and word not in _NO_NOUNS)


@lru_cache(65_536)
def tagged_nouns(title: str) -> tuple[str, ...]:
    """Return the words that spaCy's small English model tags as nouns, as in WebShop.

    Raises:
        MissingPackageError: If spaCy or its model is not installed.
    """
    return tuple(token.text.lower() for token in _tagger()(title) if token.pos_ in ("NOUN", "PROPN"))


@lru_cache(1)
def _tagger() -> Any:
    try:  # no import statement: the code's identity would then require a package that is rarely installed
        return import_module("spacy").load(_SPACY_MODEL)
    except (ImportError, OSError) as error:
        raise MissingPackageError(
            f"nouns = 'spacy' needs spaCy and its model: pip install spacy && python -m spacy download {_SPACY_MODEL}; "
            "or set nouns = 'rule'"
        ) from error
