"""`Product` and `Wish`: what is sold, and what somebody wants of it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Wish:
    """What somebody asks for.

    Attributes:
        text: In words, without options and price.
        attributes: At least one.
        options: Values of options, where the asker names them (`items_human_ins.json`).
    """

    text: str
    attributes: tuple[str, ...]
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Product:
    """One good.

    Attributes:
        asin: Its number, without blanks and brackets, unique whatever the case.
        title: As results and its page show it.
        query: What shoppers call such a thing, in lower case.
        categories: From the widest to the narrowest.
        price_range: Dollars, lowest and highest; the price of a catalogue lies between.
        description: For its page of that name.
        bullets: For its page Features.
        attributes: What it is, in short words; no page shows them unless asked.
        options: Name and values of each, in lower case.
        wish: A synthetic wish for it; None: no synthetic goal.
        human_wishes: What people wrote who were shown it.
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
        """As pages show it: `$35`, `$12.50`, `$10 to $20`."""
        low, high = map(dollars, self.price_range)
        return low if low == high else f"{low} to {high}"

    @property
    def indexed(self) -> str:
        """What a search looks through: title, description, first bullet, options with their values; in lower case."""
        options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in self.options)
        return " ".join([self.title, self.description, *self.bullets[:1], options]).lower()


def dollars(amount: float) -> str:
    """`$35` or `$12.50`."""
    return f"${amount:.2f}".removesuffix(".00")
