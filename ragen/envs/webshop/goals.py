"""Goals: the requests of episodes, derived from the catalogue alone.

    wishes x options -> goals, shuffled -> (split, seed) -> one goal

WebShop draws prices and price limits from an unseeded generator, so that goal i differs between workers. Here both are
hashes of the product's ASIN and the catalogue's digest: the same everywhere.
"""

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from starpo.ragen.core.errors import ConfigError
from starpo.ragen.core.seeding import derive_seed
from starpo.ragen.envs.webshop.product import Product

Split = Literal["train", "val", "test", "all"]

_SHUFFLE_SEED, _TRAIN_SEED = 233, 42
_NUM_TEST, _NUM_VAL = 500, 1000
_LIMITS = tuple(10.0 * tens for tens in range(1, 100))
_NUM_NEXT = 4
NO_LIMIT = 1_000_000.0


@dataclass(frozen=True, slots=True)
class Goal:
    """The request of an episode.

    Attributes:
        instruction: The request as WebShop writes it, with the price limit at the end.
        terse: The same in as few words as possible, for the compact observation.
        asin: ASIN of the product that the goal was made from, which satisfies it.
        title: Title of that product.
        query: Query of that product.
        categories: Categories of that product.
        attributes: Wanted attributes; at least one.
        options: Wanted values of options.
        price_limit: Price limit in dollars.
    """

    instruction: str
    terse: str
    asin: str
    title: str
    query: str
    categories: tuple[str, ...]
    attributes: tuple[str, ...]
    options: tuple[str, ...]
    price_limit: float


def price_of(product: Product, digest: str) -> float:
    """Return the price in dollars, uniform over the product's range by a hash."""
    low, high = product.price_range
    return round(low + (high - low) * derive_seed(product.asin, digest, "price") / 2**63, 2)


def price_limit(asin: str, price: float, digest: str) -> float:
    """Return the larger of two different multiples of 10, drawn from the next four above the price.

    `NO_LIMIT` if fewer than two of them are below 1000.
    """
    above = [limit for limit in _LIMITS if limit > price][:_NUM_NEXT]
    pairs = list(itertools.combinations(above, 2))
    return pairs[derive_seed(asin, digest, "price limit") % len(pairs)][1] if pairs else NO_LIMIT


class Goals:
    """All goals of a catalogue, in the order that the splits divide; each is built on demand."""

    def __init__(self, products: Sequence[Product], prices: Sequence[float], digest: str, kind: str) -> None:
        """List the goals.

        Args:
            products: Products of the catalogue.
            prices: Their prices.
            digest: Digest of the catalogue.
            kind: 'synthetic': a product's own wish with every combination of its options. 'human': people's wishes.
        """
        self._products, self._prices, self._digest, self._kind = products, prices, digest, kind
        self._places = [(place, number) for place in range(len(products)) for number in range(self._count(place))]
        random.Random(_SHUFFLE_SEED).shuffle(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def index(self, split: Split, seed: int) -> int:
        """Return the index of the goal that a seed selects: the seed modulo the size of the split.

        Args:
            split: Goals 0 to 499 are for testing, 500 to 1499 for validation, the rest, shuffled, for training.
            seed: Seed of the episode.

        Raises:
            ConfigError: If the split is empty.
        """
        first, end = {
            "test": (0, min(_NUM_TEST, len(self))),
            "val": (_NUM_TEST, min(_NUM_TEST + _NUM_VAL, len(self))),
            "train": (_NUM_TEST + _NUM_VAL, len(self)),
            "all": (0, len(self)),
        }[split]
        if end <= first:
            raise ConfigError(
                f"webshop: the catalogue has {len(self)} goals, and split = '{split}' begins at goal {first}: "
                "take more products (num_products), or split = 'all'"
            )
        return self._train_order[seed % (end - first)] if split == "train" else first + seed % (end - first)

    def goal(self, index: int) -> Goal:
        """Build the goal at this index."""
        place, number = self._places[index]
        product, price = self._products[place], self._prices[place]
        limit = price_limit(product.asin, price, self._digest)
        if self._kind == "human":
            wish, options = product.human_wishes[number], product.human_wishes[number].options
            text, terse = wish.text, wish.text
        else:
            assert product.wish is not None, "only products with a wish are counted"
            wish, offered = product.wish, sorted(product.options)
            names = [name for name, _ in offered]
            options = next(itertools.islice(itertools.product(*(values for _, values in offered)), number, None))
            text = wish.text + _with(names, options)
            chosen = [f"{name} {value}" for name, value in zip(names, options, strict=True)]
            terse = " ".join([*wish.attributes, product.query, *chosen])
        has_limit = limit != NO_LIMIT
        return Goal(
            instruction=text + (f", and price lower than {limit:.2f} dollars" if has_limit else ""),
            terse=terse + (f" under {limit:g}" if has_limit else ""),
            asin=product.asin,
            title=product.title,
            query=product.query,
            categories=product.categories,
            attributes=wish.attributes,
            options=options,
            price_limit=limit,
        )

    def _count(self, place: int) -> int:
        product = self._products[place]
        if self._kind == "human":
            return len(product.human_wishes)
        return math.prod(len(values) for _, values in product.options) if product.wish else 0

    @cached_property
    def _train_order(self) -> list[int]:
        order = list(range(_NUM_TEST + _NUM_VAL, len(self)))
        random.Random(_TRAIN_SEED).shuffle(order)
        return order


def _with(names: Sequence[str], options: Sequence[str]) -> str:
    parts = [f"{name}: {value}" for name, value in zip(names, options, strict=True)]
    return f" with {', and '.join(parts)}" if parts else ""
