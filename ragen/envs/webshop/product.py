"""`Product` and `Wish`: an article of the shop, and a request for one."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Wish:
    """A request.

    Attributes:
        text: The request in words, without options and price.
        attributes: Requested attributes; at least one.
        options: Requested values of options, if the request names them (`items_human_ins.json`).
    """

    text: str
    attributes: tuple[str, ...]
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Product:
    """One article.

    Attributes:
        asin: Product number, without whitespace, brackets and `||`, unique even when case is ignored.
        title: Title on the results page and the product's page.
        query: Search term for this kind of product, in lower case.
        categories: Categories, from the widest to the narrowest.
        price_range: Lowest and highest price in dollars; the catalogue's price lies in between.
        description: Text of the page Description.
        bullets: Items of the page Features.
        attributes: Short descriptive terms; no page shows them.
        options: Name and values of each option, in lower case.
        wish: Synthetic wish for the product; None: no synthetic goal.
        human_wishes: Wishes written by people who were shown the product.
    """

    asin: str
    title: str
    query: str
    categories: tuple[str, ...]
    price_range: tuple[float, float]
    description: str
    bullets: tuple[str, ...]
    attributes: tuple[str, ...]
    options: tuple[tuple[str, tuple[str, ...]], ...]
    wish: Wish | None = None
    human_wishes: tuple[Wish, ...] = ()

    @property
    def price_tag(self) -> str:
        """Price as shown on pages: `$35`, `$12.50`, `$10 to $20`."""
        low, high = map(dollars, self.price_range)
        return low if low == high else f"{low} to {high}"

    @property
    def indexed(self) -> str:
        """Text for the search index: title, description, first bullet, options with their values; in lower case."""
        options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in self.options)
        return " ".join([self.title, self.description, *self.bullets[:1], options]).lower()


def dollars(amount: float) -> str:
    """Format an amount as `$35` or `$12.50`."""
    return f"${amount:.2f}".removesuffix(".00")
