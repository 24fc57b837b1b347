"""Pages as text.

'text'     the content of WebShop's pages, joined by [SEP]
'compact'  few lines, clickable items in brackets
"""

from starpo.ragen.envs.webshop.goals import Goal
from starpo.ragen.envs.webshop.product import Product
from starpo.ragen.envs.webshop.visit import BACK, BUY, NEXT, PREVIOUS, SUB_PAGES, PageVisit, Shop

_WRITTEN = {BACK: "Back to Search", PREVIOUS: "< Prev", NEXT: "Next >", BUY: "Buy Now"}
_SEPARATOR = " [SEP] "
_NOTHING = "There is nothing on this page."
_NO_REVIEWS = "There are no reviews."


def write_text(shop: Shop, goal: Goal, visit: PageVisit, score: float) -> str:
    """Write a page like WebShop's text observation, plus the chosen options, which the original does not show.

    Args:
        shop: The shop.
        goal: The goal, whose instruction is on every page before the purchase.
        visit: The page.
        score: Score of the purchase; shown after it.
    """
    if visit.page == "done":
        return _SEPARATOR.join(["You have bought", visit.asin, "Your score, from 0 to 1", f"{score:.2f}"])
    instruction = ["Instruction:", goal.instruction]
    if visit.page == "search":
        return _SEPARATOR.join(["WebShop", *instruction, "Search"])
    buttons = [_WRITTEN[label] for label in shop.buttons(visit)]
    if visit.page == "results":
        products = [shop.catalogue.products[place] for place in shop.shown(visit)]
        lines = [part for product in products for part in (product.asin, product.title, product.price_tag)]
        total = f"Page {visit.number} (Total results: {len(shop.results(visit))})"
        return _SEPARATOR.join([*instruction, buttons[0], total, *buttons[1:], *lines])
    product = shop.catalogue.product(visit.asin)
    if visit.page != "item":
        return _SEPARATOR.join([*instruction, *buttons, *_sub_page(product, visit)])
    options = [part for name, values in product.options for part in (name, *values)]
    chosen = [f"You have chosen: {', '.join(visit.values)}"] if visit.chosen else []
    facts = [product.title, f"Price: {product.price_tag}", "Rating: N.A."]
    sub_pages = [page.title() for page in SUB_PAGES]
    return _SEPARATOR.join([*instruction, *buttons, *options, *chosen, *facts, *sub_pages, _WRITTEN[BUY]])


def write_compact(shop: Shop, goal: Goal, visit: PageVisit, score: float) -> str:
    """Write a page in few lines; see `write_text`."""
    if visit.page == "done":
        return f"{goal.terse}\nbought {visit.asin.lower()}\nscore {score:.2f}"
    if visit.page == "search":
        return f"{goal.terse}\nsearch[words]"
    if visit.page == "results":
        products = [shop.catalogue.products[place] for place in shop.shown(visit)]
        labelled = zip(shop.labels(visit), products, strict=True)
        lines = [f"[{label}] {product.title} {product.price_tag}" for label, product in labelled]
        return "\n".join([goal.terse, *lines, _bracketed(shop.buttons(visit)[::-1])])
    product = shop.catalogue.product(visit.asin)
    if visit.page != "item":
        return "\n".join([goal.terse, *_sub_page(product, visit), _bracketed(shop.buttons(visit)[::-1])])
    options = [f"{name} {_bracketed(values)}" for name, values in product.options]
    chosen = [f"chosen {', '.join(visit.values)}"] if visit.chosen else []
    buttons = (BUY, *SUB_PAGES, *shop.buttons(visit)[::-1])
    return "\n".join([goal.terse, f"{product.title} {product.price_tag}", *options, *chosen, _bracketed(buttons)])


def _bracketed(labels: tuple[str, ...]) -> str:
    return " ".join(f"[{label}]" for label in labels)


def _sub_page(product: Product, visit: PageVisit) -> list[str]:
    texts = {
        "description": [product.description],
        "features": list(product.bullets),
        "reviews": [_NO_REVIEWS],
    }[visit.page]
    return [text for text in texts if text] or [_NOTHING]
