"""WebShop as a mediocre player plays it: reads pages as they are, and decides badly.

The noise lies in decisions (which words to search for, which product to open, which options to choose), never in what
is said about a page: a policy that imitates it learns to read and to click, and is left with the choice to learn by
reward.
"""

import random

from starpo.ragen.envs.demonstration import Demonstration
from starpo.ragen.envs.webshop.environment import GRAMMAR, WebShop
from starpo.ragen.envs.webshop.product import Product
from starpo.ragen.envs.webshop.search import words
from starpo.ragen.envs.webshop.visit import BACK, BUY, NEXT, PREVIOUS

_MAX_WORDS = 6
"""Words of a title that are written down."""


def demonstrate(environment: WebShop, skill: float, rng: random.Random) -> Demonstration:
    """Decide on one page. The environment is not stepped.

    The thought writes down what has to be compared. On the search page the words that tell products apart:
    `soft wool coat red large`. On a page of results a line for each: what is clicked for it, the words of its title
    that are asked for, its price, and whether that is within the limit: `1 wool coat 35 ok`, `2 coat 72 dear`. On
    a product's page the options, and what is asked for of them: `color red size none`.

    Args:
        environment: Before the purchase.
        skill: Probability that a decision is a good one: all words are searched for; the first product is opened that
            has all words and is not dear, or the next page where this one has none; an option is chosen as asked for.
            Otherwise each word but what kind of thing it is is searched for or not, any product is opened, and an
            option is chosen at random or forgotten.
        rng: The only source of chance.

    Returns:
        One action; on a product's page all options and the purchase.
    """
    page = environment.visit.page
    assert page != "done", "the episode has ended: there is nothing to decide"
    if page == "search":
        return _search(environment, skill, rng)
    if page == "results":
        return _open(environment, skill, rng)
    if page == "item":
        return _buy(environment, skill, rng)
    return Demonstration("read", (f"click[{PREVIOUS}]",))


def search_for(text: str) -> str:
    """A search for the words of a text, as many as an action has room for."""
    room = GRAMMAR.max_chars - len("search[]")
    query = ""
    for word in words(text):
        longer = f"{query} {word}".strip()
        if len(longer) > room:
            break
        query = longer
    return f"search[{query}]"


def _search(environment: WebShop, skill: float, rng: random.Random) -> Demonstration:
    goal = environment.goal
    telling = [*_wanted(environment), *words(" ".join(goal.options))]
    kept = telling
    if rng.random() >= skill:
        noun = len(_wanted(environment)) - 1
        kept = [word for place, word in enumerate(telling) if place == noun or rng.random() < 0.5]
    return Demonstration(" ".join(telling[: 2 * _MAX_WORDS]), (search_for(" ".join(kept)),))


def _open(environment: WebShop, skill: float, rng: random.Random) -> Demonstration:
    shop, visit = environment.shop, environment.visit
    labels, wanted = shop.labels(visit), _wanted(environment)
    facts = [_facts(environment, shop.catalogue.products[place], wanted) for place in shop.shown(visit)]
    think = "\n".join(" ".join([label, *fact]) for label, fact in zip(labels, facts, strict=True))
    fitting = [label for label, fact in zip(labels, facts, strict=True) if {*wanted, "ok"} <= set(fact)]
    is_good = rng.random() < skill
    if labels and (not is_good or fitting):
        return Demonstration(think, (f"click[{fitting[0] if is_good else rng.choice(labels)}]",))
    clicks = environment.clicks
    if NEXT in clicks:
        return Demonstration(think, (f"click[{NEXT}]",))
    if labels:
        best = max(range(len(labels)), key=lambda place: (len(facts[place]), facts[place][-1] == "ok"))
        return Demonstration(think, (f"click[{labels[best]}]",))
    return Demonstration("nothing", (f"click[{BACK}]",))


def _buy(environment: WebShop, skill: float, rng: random.Random) -> Demonstration:
    goal = environment.goal
    said, actions = [], []
    for name, values in environment.catalogue.product(environment.visit.asin).options:
        asked = next((value for value in values if value in goal.options), None)
        said.append(f"{name} {asked or 'none'}")
        chosen = asked
        if rng.random() >= skill:
            chosen = rng.choice([*values, None])
        if chosen:
            actions.append(f"click[{chosen}]")
    return Demonstration(" ".join(said) or "buy", (*actions[:4], f"click[{BUY}]"))


def _wanted(environment: WebShop) -> list[str]:
    """Words of the goal's attributes, and what kind of thing it is last."""
    goal = environment.goal
    return list(dict.fromkeys(words(" ".join([*goal.attributes, goal.query]))))


def _facts(environment: WebShop, product: Product, wanted: list[str]) -> list[str]:
    """The words of a title that are wanted, in its order, the price, and `ok` or `dear`."""
    found = list(dict.fromkeys(word for word in words(product.title) if word in wanted))[:_MAX_WORDS]
    price = product.price_range[0]
    return [*found, f"{price:g}", "ok" if price <= environment.goal.price_limit else "dear"]
