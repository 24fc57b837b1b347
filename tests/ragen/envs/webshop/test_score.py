"""The score compared with the cases of WebShop's public tests, and its parts by hand.

From `tests/web-agent-site/engine/test_goal.py` of princeton-nlp/WebShop: the numbers (title scores .333, .3 and .15;
two of three attributes; two of three options; `powder snow` for `cool powder snow`; totals 1, 2/3, .5714 and .2857),
and the attributes and options that give them. The titles are our own, with as many nouns as these numbers need: which
words of the original titles count as nouns depends on the version of spaCy.
"""

import pytest

from starpo.ragen.envs.webshop.goals import Goal
from starpo.ragen.envs.webshop.product import Product
from starpo.ragen.envs.webshop.score import (
    attributes_met,
    guessed_nouns,
    listed_nouns,
    options_met,
    plain_colour,
    score,
    title_score,
    type_factor,
)

OILS = ("tea tree", "essential oils", "natural ingredients")


def every_word(title):
    return tuple(title.lower().split())


def product(title="", query="query 1", categories=("a", "b", "c"), attributes=(), bullets=(), description=""):
    return Product("B1", title, query, categories, (35.0, 35.0), description, tuple(bullets), tuple(attributes), ())


def goal(title="sneakers shoes", attributes=OILS, options=("grey", "XL"), limit=40.0):
    return Goal("", "", "B1", title, "query 1", ("a", "b", "c"), attributes, options, limit)


@pytest.mark.parametrize(
    ("wanted", "bought", "expected"),
    [
        ("adidas basketball shoe", "adidas indoor court", 0.333),
        ("saireed cord bar soundbar home theater outlet box lamp mat", "brst cord panasonic home theater", 0.3),
        ("saireed prong cord bar channel hd soundbar power strip box mat lid cap", "brst power cord outlet", 0.15),
        ("kitchen bath cabinet knob", "steel tweezers", 0.0),
    ],
)
def test_title_scores(wanted, bought, expected):
    assert title_score(bought, wanted, every_word) == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize(
    ("query", "categories", "title", "expected"),
    [
        ("query 1", ("x",), 0.15, 1.0),
        ("query 2", ("b", "c", "a"), 0.15, 1.0),
        ("query 2", ("a", "d", "b"), 0.15, 1.0),
        ("query 2", ("a", "a", "d"), 0.15, 0.5),
        ("query 2", ("d", "e", "f"), 0.21, 1.0),
        ("query 2", ("d", "e", "f"), 0.2, 0.5),
        ("query 1", ("a", "b"), 0.09, 0.1),
        ("query 1", ("a", "b"), 0.0, 0.0),
    ],
)
def test_the_kind_of_good(query, categories, title, expected):
    assert type_factor(product(query=query, categories=categories), goal(), title) == expected


def test_attributes():
    assert attributes_met(product(attributes=("tea tree", "essential oil", "natural ingredients")), OILS) == 3
    assert attributes_met(product(attributes=("essential oil", "natural ingredients")), OILS) == 2
    in_texts = product(bullets=["It has essential oils"], description="made with natural ingredients")
    assert attributes_met(in_texts, OILS) == 2
    assert attributes_met(product("English tea", attributes=("tea bag", "earl gray")), OILS) == 0


def test_options():
    wanted = ("grey", "XL", "pack of 12")
    assert options_met(("pack of 12", "grey", "XL"), wanted) == 3
    assert options_met(("pack of 12", "blue", "XL"), wanted) == 2
    assert options_met(("pack of 12", "powder snow", "XL"), ("cool powder snow", "XL", "pack of 12")) == 3
    assert options_met((), wanted) == 0
    assert options_met(("x-large", "13.5 wide | 12", "7.5 (w)"), ("X-Large", "13.5 Wide/12", "7.5 [w]")) == 3
    assert options_met(("one", "two"), ()) == 0
    assert options_met(("grey", "grey"), ("grey",)) == 1  # each goal option counts once


def test_colours_are_compared_by_plain_name():
    assert plain_colour("heather grey melange") == "grey"
    assert plain_colour("wide") == "wide"
    assert options_met(("deep navy",), ("navy blue",)) == 0  # blue precedes navy in the alphabet
    assert options_met(("stormy navy",), ("navy",)) == 1


def test_totals():
    oils = product("sneakers shoes", attributes=("tea tree", "essential oil", "natural ingredients"))
    assert score(oils, 35.0, ("grey", "XL"), goal(), every_word).total == 1.0
    # One attribute of three, two options of two, the price: (1 + 2 + 1) / (3 + 2 + 1)
    one = product("sneakers shoes", description="made with natural ingredients")
    assert score(one, 35.0, ("grey", "XL"), goal(), every_word).total == pytest.approx(2 / 3)
    # The same with a third option that is not met: 4 / 7
    three = goal(options=("grey", "XL", "pack of 12"))
    assert score(one, 35.0, ("grey", "XL"), three, every_word).total == pytest.approx(0.5714, abs=1e-4)
    # Another kind of product, with a title score of 1/7: half of that
    other = product("cord", "query 2", ("a", "d", "e"), description="made with natural ingredients")
    kind = goal("cord bar hub lid cap mat box", options=("grey", "XL", "pack of 12"))
    assert score(other, 35.0, ("grey", "XL"), kind, every_word).total == pytest.approx(0.2857, abs=1e-4)


def test_price_above_limit_is_not_met():
    dear = score(product("shoes"), 40.01, (), goal("shoes", attributes=("light",), options=()), every_word)
    assert (dear.total, dear.is_price_met) == (0.0, False)
    assert score(product("shoes"), 40.0, (), goal("shoes", attributes=("light",), options=()), every_word).total == 0.5


def test_nouns():
    assert listed_nouns("soft wool coat") == ("wool", "coat")
    assert guessed_nouns("D.o.n. Issue 2 Shoe for the Unisex-Adult, 4K") == ("issue", "shoe", "unisex", "adult")
