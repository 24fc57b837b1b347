"""`Catalogue`: a shop's products, index and goals; loaded once per process and shared by all environments.

synthetic products or user files -> Catalogue, identified by a digest of its content
"""

import logging
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

from starpo.ragen.core.errors import ConfigError
from starpo.ragen.envs.webshop.files import OmittedEntry, files_digest, read_products
from starpo.ragen.envs.webshop.goals import Goals, price_of
from starpo.ragen.envs.webshop.product import Product
from starpo.ragen.envs.webshop.score import Nouns, guessed_nouns, listed_nouns, tagged_nouns
from starpo.ragen.envs.webshop.search import ProductIndex, needed_packages
from starpo.ragen.envs.webshop.synthetic import make_products

_log = logging.getLogger(__name__)

_NUM_SYNTHETIC = 5000
_NUM_NAMED = 50
_NOUNS: dict[str, Nouns] = {"list": listed_nouns, "rule": guessed_nouns, "spacy": tagged_nouns}


class CatalogueSource(NamedTuple):
    """Source of a catalogue; the fields are those of the settings."""

    folder: str
    digest: str
    num_products: int | None
    seed: int
    num_hidden: int
    goals: str
    nouns: str


class Catalogue:
    """The products of a shop.

    Attributes:
        products: Products, in order.
        prices: Their prices in dollars.
        digest: Digest of the content, 16 hexadecimal digits.
        refused: Entries of the files that cannot be used.
        index: Search index over the products.
        goals: Goals of the episodes.
        nouns: Extracts the nouns of a title.
        nouns_rule: 'list' (the synthetic catalogue's own), 'rule' or 'spacy'.
    """

    def __init__(
        self, products: Sequence[Product], digest: str, refused: Sequence[OmittedEntry], goals: str, nouns_rule: str
    ) -> None:
        """Price and index the products, and list the goals.

        Raises:
            ConfigError: If the products have no goal.
            MissingPackageError: See `search.needed_packages` and `score.tagged_nouns`.
        """
        self.products, self.digest, self.refused = tuple(products), digest, tuple(refused)
        self.prices = tuple(price_of(product, digest) for product in products)
        self.index = ProductIndex([product.indexed for product in products], [product.asin for product in products])
        self.goals = Goals(self.products, self.prices, digest, goals)
        self.nouns_rule = nouns_rule
        self.nouns = _NOUNS[nouns_rule]
        self.nouns(products[0].title)
        self._places = {product.asin.lower(): place for place, product in enumerate(products)}
        if not self.goals:
            raise ConfigError(
                f"webshop: {len(products)} products have no goal of kind '{goals}': set goals = "
                f"'{'human' if goals == 'synthetic' else 'synthetic'}', or take more products"
            )

    def place(self, asin: str) -> int:
        """Return the position of the product with this ASIN, ignoring case."""
        return self._places[asin.lower()]

    def product(self, asin: str) -> Product:
        """Return the product with this ASIN, ignoring case."""
        return self.products[self.place(asin)]


@lru_cache(maxsize=4)
def load_catalogue(source: CatalogueSource) -> Catalogue:
    """Generate the synthetic catalogue, or read the user's files.

    Raises:
        ConfigError: If the files are missing, unreadable or do not match `source.digest`; if there is no goal.
        MissingPackageError: If bm25s or rapidfuzz is not installed, or spaCy or its model if `source.nouns` needs it.
    """
    needed_packages()
    if not source.folder:
        num_products = source.num_products or _NUM_SYNTHETIC
        made = make_products(num_products, source.seed, source.num_hidden)
        digest = blake2b(repr(made).encode(), digest_size=8).hexdigest()
        return Catalogue(made, digest, (), source.goals, "list")
    current_digest = files_digest(source.folder)
    if current_digest != source.digest:
        raise ConfigError(
            f"the files in webshop folder '{source.folder}' have the digest {current_digest}, expected "
            f"{source.digest}: they were changed since; restore the old ones, or leave out "
            "environment.digest to use the new ones"
        )
    products, refused = read_products(source.folder, source.num_products)
    if refused:
        more = f", and {len(refused) - _NUM_NAMED} more" if len(refused) > _NUM_NAMED else ""
        _log.warning(
            "webshop: %d products and wishes in %s cannot be used and are left out, %d products are sold: %s%s",
            len(refused),
            source.folder,
            len(products),
            ", ".join(map(str, refused[:_NUM_NAMED])),
            more,
        )
    return Catalogue(products, current_digest, refused, source.goals, source.nouns)
