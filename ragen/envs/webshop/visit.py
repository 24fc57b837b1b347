"""`PageVisit`: the current page of a shopper, and the target of each click.

search -> results -> item -> description, features, reviews
                       '---> done
"""

from typing import Literal, NamedTuple

from starpo.ragen.envs.webshop.catalogue import Catalogue

Page = Literal["search", "results", "item", "description", "features", "reviews", "done"]
SUB_PAGES: tuple[Page, ...] = ("description", "features", "reviews")
"""Pages that a product's page leads to, in order."""

BACK, PREVIOUS, NEXT, BUY = "back to search", "< prev", "next >", "buy now"


class PageVisit(NamedTuple):
    """A page of the shop and the chosen options.

    Attributes:
        page: The page.
        query: Words of the search that led here; "" on the search page.
        number: Number of the page of results, from 1.
        asin: ASIN of the product that is shown or was bought; "" on earlier pages.
        chosen: Names of options and their chosen values, sorted by name.
    """

    page: Page = "search"
    query: str = ""
    number: int = 1
    asin: str = ""
    chosen: tuple[tuple[str, str], ...] = ()

    @property
    def values(self) -> tuple[str, ...]:
        """Values of the chosen options."""
        return tuple(value for _, value in self.chosen)


class Shop(NamedTuple):
    """A catalogue and its presentation.

    Attributes:
        catalogue: The catalogue.
        page_size: Products per page of results.
        is_numbered: Whether products are clicked by their position on the page of results, from 1, instead of by ASIN.
    """

    catalogue: Catalogue
    page_size: int
    is_numbered: bool = False

    def results(self, visit: PageVisit) -> tuple[int, ...]:
        """Return the catalogue positions of all results of the visit's search."""
        return self.catalogue.index.search(visit.query)

    def shown(self, visit: PageVisit) -> tuple[int, ...]:
        """Return the catalogue positions of the products on the visit's page of results."""
        return self.results(visit)[(visit.number - 1) * self.page_size : visit.number * self.page_size]

    def labels(self, visit: PageVisit) -> tuple[str, ...]:
        """Return the label to click for each product on the visit's page of results, in lower case."""
        shown = self.shown(visit)
        if self.is_numbered:
            return tuple(str(number) for number in range(1, len(shown) + 1))
        return tuple(self.catalogue.products[place].asin.lower() for place in shown)

    def buttons(self, visit: PageVisit) -> tuple[str, ...]:
        """Return the navigation labels, in lower case; empty on the search page and after the purchase."""
        if visit.page in ("search", "done"):
            return ()
        if visit.page != "results":
            return BACK, PREVIOUS
        has_next = visit.number * self.page_size < len(self.results(visit))
        return (BACK, *((PREVIOUS,) if visit.number > 1 else ()), *((NEXT,) if has_next else ()))

    def clicks(self, visit: PageVisit) -> dict[str, PageVisit]:
        """Map each clickable label, in lower case, to the visit that it leads to."""
        buttons = self.buttons(visit)
        if visit.page == "results":
            steps = {PREVIOUS: visit.number - 1, NEXT: visit.number + 1}
            pages = {label: visit._replace(number=number) for label, number in steps.items() if label in buttons}
            items = [visit._replace(page="item", asin=self.catalogue.products[at].asin) for at in self.shown(visit)]
            return {BACK: PageVisit()} | pages | dict(zip(self.labels(visit), items, strict=True))
        if visit.page == "item":
            clicks = {BACK: PageVisit(), PREVIOUS: PageVisit("results", visit.query, visit.number)}
            clicks[BUY] = visit._replace(page="done")
            return self._options(visit) | clicks | {page: visit._replace(page=page) for page in SUB_PAGES}
        return {BACK: PageVisit(), PREVIOUS: visit._replace(page="item")} if buttons else {}

    def _options(self, visit: PageVisit) -> dict[str, PageVisit]:
        """Map each option value to the visit with it chosen; a value shared by two options belongs to the first one."""
        clicks: dict[str, PageVisit] = {}
        for name, values in self.catalogue.product(visit.asin).options:
            others = [(other, value) for other, value in visit.chosen if other != name]
            for value in values:
                clicks.setdefault(value, visit._replace(chosen=tuple(sorted([*others, (name, value)]))))
        return clicks
