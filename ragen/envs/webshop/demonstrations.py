"""Mediocre demonstrator for WebShop that reads pages correctly and decides badly.

The noise is in the decisions (which words to search for, which product to open, which options to choose), never in the
statements about a page. A policy that imitates it learns to read and to click; the choices are left for the reward to
teach.
"""

import random

from starpo.ragen.envs.demonstration import Demonstration
from starpo.ragen.envs.webshop.environment import WebShop, search_for
from starpo.ragen.envs.webshop.product import Product
from starpo.ragen.envs.webshop.search import words
from starpo.ragen.envs.webshop.visit import BACK, BUY, NEXT, PREVIOUS

_MAX_WORDS = 6
"""Maximum number of words of a title in the reasoning."""


def demonstrate(environment: WebShop, skill: float, rng: random.Random) -> Demonstration:
    """Decide on one page. The environment is not stepped.

    The reasoning lists what has to be compared. On the search page, the words that distinguish products:
    `soft wool coat red large`. On a page of results, a line per product with its label, the requested words of its
    title, its price, and whether that is within the limit: `1 wool coat 35 ok`, `2 coat 72 dear`. On a product's page,
    the options with their requested values: `color red size none`.

    Args:
        environment: Environment before the purchase.
        skill: Probability that a decision is a good one: search for all words; open the first product that has all
            words and is within the limit, or the next page if there is none; choose an option as requested. Otherwise
            each word except the product noun is searched for with probability 1/2, a random product is opened, and an
            option is set to a random value or left out.
        rng: The only source of randomness.

    Returns:
        One action; on a product's page, clicks on at most four options and the purchase.
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
    thoughts, actions = [], []
    for name, values in environment.catalogue.product(environment.visit.asin).options:
        goal_value = next((value for value in values if value in goal.options), None)
        thoughts.append(f"{name} {goal_value or 'none'}")
        chosen = goal_value
        if rng.random() >= skill:
            chosen = rng.choice([*values, None])
        if chosen:
            actions.append(f"click[{chosen}]")
    return Demonstration(" ".join(thoughts) or "buy", (*actions[:4], f"click[{BUY}]"))


def _wanted(environment: WebShop) -> list[str]:
    """Return the words of the goal's attributes, followed by those of its query, the kind of product."""
    goal = environment.goal
    return list(dict.fromkeys(words(" ".join([*goal.attributes, goal.query]))))


def _facts(environment: WebShop, product: Product, wanted: list[str]) -> list[str]:
    """Return the wanted words of a product's title, in title order, then its price, and `ok` or `dear`."""
    title_words = list(dict.fromkeys(word for word in words(product.title) if word in wanted))[:_MAX_WORDS]
    price = product.price_range[0]
    return [*title_words, f"{price:g}", "ok" if price <= environment.goal.price_limit else "dear"]
