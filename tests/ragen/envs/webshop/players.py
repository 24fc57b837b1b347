"""Reference players: WebShop's rule policy, and the solver, whose success rate is an upper bound.

environment -> player -> action, until the purchase
"""

from collections.abc import Callable, Iterable

from starpo.ragen.envs.webshop.environment import WebShop, WebShopSettings, search_for
from starpo.ragen.envs.webshop.score import options_met
from starpo.ragen.envs.webshop.visit import BACK, BUY, NEXT

Player = Callable[[WebShop], str]
"""Returns the next action. The environment is not stepped."""

MAX_STEPS = 100
"""More than the solver ever needs: 50 pages of results plus the options."""


def rule_policy(environment: WebShop) -> str:
    """Search the instruction, click the first product, buy (WebShop, `baseline_models/test.py`).

    If nothing is found it goes back and searches again, indefinitely.
    """
    visit, shop = environment.visit, environment.shop
    if visit.page == "search":
        return search_for(environment.goal.instruction)
    if visit.page == "results":
        return f"click[{next(iter(shop.labels(visit)), BACK)}]"
    return f"click[{BUY}]"


def solver(environment: WebShop) -> str:
    """Search the title and options of the product that the goal was made from, open it, choose its options, buy it."""
    visit, shop, goal = environment.visit, environment.shop, environment.goal
    if visit.page == "search":
        return search_for(" ".join([goal.title, *goal.options]))
    clicks = environment.clicks
    if visit.page == "results":
        opening = (label for label, ahead in clicks.items() if ahead.asin == goal.asin)
        return f"click[{next(opening, NEXT if NEXT in clicks else BACK)}]"
    left = list(goal.options)
    for _, values in shop.catalogue.product(goal.asin).options:
        wanted = next((value for value in values if value in left), None)  # each wanted value counts for one option
        if wanted is not None:
            left.remove(wanted)
        wanted = wanted or next((value for value in values if options_met([value], goal.options)), None)
        if wanted is not None and wanted not in visit.values:
            return f"click[{wanted}]"
    return f"click[{BUY}]"


def results_of(player: Player, settings: WebShopSettings, seeds: Iterable[int]) -> tuple[float, float]:
    """Return a player's mean score and success rate; an episode without a purchase in `MAX_STEPS` steps counts 0."""
    environment = WebShop(settings)
    scores, successes = [], []
    for seed in seeds:
        environment.reset(seed=seed)
        for _ in range(MAX_STEPS):
            if environment.step(player(environment))[2]:
                break
        scores.append(environment.score)
        successes.append(environment.is_success)
    return sum(scores) / len(scores), sum(successes) / len(successes)
