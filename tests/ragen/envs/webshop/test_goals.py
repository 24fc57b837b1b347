"""Goals: the same in every process, with the splits of RAGEN and of WebShop."""

from collections import Counter

import pytest

from starpo.ragen.core.errors import ConfigError
from starpo.ragen.envs.webshop.goals import NO_LIMIT, Goals, price_limit, price_of
from starpo.ragen.envs.webshop.product import Product, Wish


def product(number, price=(35.0, 35.0), options=(), attributes=("soft",)):
    wish = Wish("Find me soft shoes", attributes) if attributes else None
    return Product(f"B{number}", "soft shoes", "shoes", ("a", "b"), price, "", (), attributes, options, wish)


def goals_of(products, kind="synthetic", digest="d"):
    return Goals(products, [price_of(p, digest) for p in products], digest, kind)


def test_price_limit_follows_its_distribution():
    # Above 35 are 40, 50, 60, 70; in six pairs, the larger one is 50 once, 60 twice and 70 three times.
    counts = Counter(price_limit(f"B{n}", 35.0, "d") for n in range(3000))
    assert set(counts) == {50.0, 60.0, 70.0}
    assert [counts[limit] / 3000 for limit in (50.0, 60.0, 70.0)] == pytest.approx([1 / 6, 1 / 3, 1 / 2], abs=0.03)


def test_price_limit_is_capped():
    assert price_limit("B1", 970.0, "d") == 990.0
    assert price_limit("B1", 980.0, "d") == NO_LIMIT
    (goal,) = [goals_of([product(1, (985.0, 985.0))]).goal(0)]
    assert goal.instruction == "Find me soft shoes"


def test_instruction_names_options_then_limit():
    goals = goals_of([product(1, options=(("size", ("small",)), ("color", ("red", "blue"))))])
    assert len(goals) == 2
    texts = sorted(goals.goal(index).instruction for index in range(2))
    limit = price_limit("B1", 35.0, "d")
    assert texts[1] == f"Find me soft shoes with color: red, and size: small, and price lower than {limit:.2f} dollars"
    assert sorted(goals.goal(index).options for index in range(2)) == [("blue", "small"), ("red", "small")]


def test_price_lies_in_range_per_catalogue():
    prices = {price_of(product(n, (10.0, 20.0)), "d") for n in range(50)}
    assert min(prices) >= 10.0
    assert max(prices) <= 20.0
    assert len(prices) > 40
    assert price_of(product(1, (10.0, 20.0)), "d") != price_of(product(1, (10.0, 20.0)), "another")


def test_price_limit_is_stable_across_processes():
    """The expected limits were computed in other processes, one of them with another hash seed."""
    assert [price_limit(f"B{n}", 35.0, "d") for n in range(8)] == [50.0, 50.0, 60.0, 60.0, 60.0, 70.0, 70.0, 70.0]


def test_ragens_split():
    goals = goals_of([product(n) for n in range(1600)])
    assert [goals.index("test", seed) for seed in (0, 499, 500)] == [0, 499, 0]
    assert [goals.index("val", seed) for seed in (0, 999, 1000)] == [500, 1499, 500]
    train = [goals.index("train", seed) for seed in range(100)]
    assert sorted(train) == list(range(1500, 1600))
    assert train != sorted(train)
    assert goals.index("train", 100) == train[0]


def test_empty_split_raises_config_error():
    with pytest.raises(ConfigError, match="has 10 goals, and split = 'train' begins at goal 1500"):
        goals_of([product(n) for n in range(10)]).index("train", 0)
