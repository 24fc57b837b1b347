"""WebShop without a policy: cost of a search and an episode of pages, and scores of scripted players.

Times are processor time, since this is one thread on a shared machine.

pytest -m benchmark tests/benchmarks/test_webshop.py -s
"""

import random
import statistics
import time

import pytest

from starpo.flows.presets import preset
from starpo.ragen.envs.webshop.environment import WebShop, WebShopSettings
from starpo.ragen.envs.webshop.search import words
from tests.ragen.envs.webshop.players import results_of, rule_policy, solver

pytestmark = pytest.mark.benchmark

EPISODES, STEPS, QUERIES = 1000, 10, 500


def test_search_of_10000_under_5_ms() -> None:
    environment = WebShop(WebShopSettings(num_products=10_000))
    environment.reset(seed=0)
    index, goals = environment.catalogue.index, environment.catalogue.goals
    queries = [" ".join(words(goals.goal(number).instruction)) for number in range(QUERIES)]
    times = []
    for query in queries:
        started = time.process_time()
        index.search(query)
        times.append(1000 * (time.process_time() - started))
    print(f"search among 10,000: median {statistics.median(times):.3f} ms, slowest {max(times):.3f} ms")
    assert statistics.median(times) < 5


@pytest.mark.parametrize("observation", ["text", "compact"])
def test_500_episodes_of_pages_a_second(observation: str) -> None:
    """Episodes consist of random searches, never the same twice, and random clicks, until a purchase or ten actions."""
    environment = WebShop(WebShopSettings(num_products=5000, observation=observation))
    rng, num_steps = random.Random(observation), 0
    environment.reset(seed=0)
    started = time.process_time()
    for seed in range(EPISODES):
        environment.reset(seed=seed)
        for _ in range(STEPS):
            num_steps += 1
            if environment.step(environment.random_action(rng))[2]:
                break
    seconds = time.process_time() - started
    print(f"{observation}: {EPISODES / seconds:.0f} episodes a second, {num_steps / seconds:.0f} steps")
    assert EPISODES / seconds > 500


def test_the_players_on_the_presets_shop() -> None:
    settings = preset("webshop").environment
    assert isinstance(settings, WebShopSettings)
    for name, player in (("rule policy", rule_policy), ("solver", solver)):
        mean, success = results_of(player, settings, range(1000))
        print(f"{name}: mean score {mean:.3f}, success {success:.3f}")
    assert (mean, success) == (1.0, 1.0)
