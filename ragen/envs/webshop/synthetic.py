"""A synthetic catalogue: families of products that are easily confused.

    seed -> family: a product, the same too expensive, one with another quality, one with other options -> products

The first of a family satisfies its own wish and its relatives nearly satisfy it: so purchases score .5 to .9 as well as
0 and 1, and comparing prices, qualities and options is rewarded.
"""

import random
from collections.abc import Iterator

from starpo.ragen.core.seeding import python_random
from starpo.ragen.envs.webshop.product import Product, Wish
from starpo.ragen.envs.webshop.vocabulary import DEPARTMENTS, Department

_LETTERS, _DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789"
_NUM_SHORT = 5000
"""Catalogues of up to this many products use ASINs of three characters, larger ones of four."""
_OPTIONS = (0, 1, 1, 2, 2, 2, 2, 2)
"""The number of options of a product is drawn from these."""
_MAX_VALUES = 4


def make_products(num_products: int, seed: int, num_hidden: int) -> list[Product]:
    """Make a catalogue.

    Args:
        num_products: Number of products; at most 60,000.
        seed: Seed of the catalogue.
        num_hidden: Number of attributes per wish that only the page Features shows.

    Returns:
        Products in random order, the same in every process.
    """
    rng = python_random(seed, "webshop catalogue", num_products)
    numbers = _numbers(num_products, rng)
    products: list[Product] = []
    while len(products) < num_products:
        department = rng.choice(DEPARTMENTS)
        for draft in _family(department, rng):
            if len(products) < num_products:
                products.append(_product(numbers[len(products)], department, draft, num_hidden))
    rng.shuffle(products)
    return products


Draft = tuple[str, tuple[str, ...], tuple[str, ...], int, tuple[tuple[str, tuple[str, ...]], ...]]
"""Noun, qualities, hidden qualities, price, options."""


def _numbers(count: int, rng: random.Random) -> list[str]:
    """Draw distinct ASINs of alternating letters and digits, such as K4T: short, and unrelated to the products."""
    alphabets = (_LETTERS, _DIGITS, _LETTERS, _DIGITS)[: 3 if count <= _NUM_SHORT else 4]
    size = len(_LETTERS) ** 2 * len(_DIGITS) ** (len(alphabets) - 2)
    numbers = []
    for place in rng.sample(range(size), count):
        signs = []
        for alphabet in alphabets:
            place, sign = divmod(place, len(alphabet))
            signs.append(alphabet[sign])
        numbers.append("".join(signs))
    return numbers


def _family(department: Department, rng: random.Random) -> Iterator[Draft]:
    noun = rng.choice(department.nouns)
    first, second, other = rng.sample(department.qualities, 3)
    hidden = tuple(rng.sample(department.hidden, 2))
    price = 10 * rng.randint(1, 4) + rng.randint(1, 9)
    options = _options(department, rng)
    yield noun, (first, second), hidden, price, options
    dear = 10 * rng.randint(price // 10 + 5, 9) + rng.randint(1, 9)  # above any price limit for the first
    yield noun, (first, second), hidden, dear, options
    near = 10 * rng.randint(1, 4) + rng.randint(1, 9)
    yield noun, rng.choice([(first, other), (other, second)]), hidden, near, options
    poor = 10 * rng.randint(1, 4) + rng.randint(1, 9)
    yield noun, (first, second), hidden, poor, _options(department, rng)


def _options(department: Department, rng: random.Random) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Draw some of the department's options, in its order, each with two to four of its values, in random order."""
    chosen = sorted(rng.sample(range(len(department.options)), rng.choice(_OPTIONS)))
    offers = []
    for name, values in (department.options[place] for place in chosen):
        offers.append((name, tuple(rng.sample(values, rng.randint(2, min(_MAX_VALUES, len(values)))))))
    return tuple(offers)


def _product(number: str, department: Department, draft: Draft, num_hidden: int) -> Product:
    noun, qualities, hidden, price, options = draft
    title = " ".join([*qualities, noun])
    return Product(
        asin=number,
        title=title,
        query=noun,
        categories=(department.name, noun),
        price_range=(float(price), float(price)),
        description=f"{title} for {department.name}",
        bullets=(title, f"it is {' and '.join(hidden)}"),
        attributes=(*qualities, *hidden),
        options=options,
        wish=Wish(f"Find me {' '.join([*qualities, *hidden[:num_hidden], noun])}", (*qualities, *hidden[:num_hidden])),
    )
