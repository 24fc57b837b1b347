"""WebShop: pages and clicks, hostile actions, and the success of the reference players."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from starpo.ragen.core.errors import EnvironmentFault
from starpo.ragen.envs.webshop.environment import GRAMMAR, WebShop, WebShopSettings
from starpo.ragen.envs.webshop.search import ProductIndex, words
from tests.ragen.envs.webshop.players import results_of, rule_policy, solver

SMALL = {"num_products": 600, "split": "all"}


def start(seed=0, **changed):
    environment = WebShop(WebShopSettings(**SMALL | changed))
    environment.reset(seed=seed)
    return environment


def play(environment, *actions):
    return [environment.step(action) for action in actions][-1]


def test_pages_as_webshop_writes_them():
    environment = start()
    goal = environment.goal
    assert environment.render() == f"WebShop [SEP] Instruction: [SEP] {goal.instruction} [SEP] Search"
    results, *_ = environment.step(f"search[{goal.query}]")
    total = len(environment.shop.results(environment.visit))
    first, *_ = (environment.catalogue.products[place] for place in environment.shop.shown(environment.visit))
    head = f"Instruction: [SEP] {goal.instruction} [SEP] Back to Search [SEP] Page 1 (Total results: {total})"
    assert results.startswith(
        f"{head} [SEP] Next > [SEP] {first.asin} [SEP] {first.title} [SEP] {first.price_tag} [SEP] "
    )
    item, *_ = environment.step(f"click[{first.asin.lower()}]")
    facts = f"{first.title} [SEP] Price: {first.price_tag} [SEP] Rating: N.A. [SEP] Description [SEP] Features"
    assert item.endswith(f"{facts} [SEP] Reviews [SEP] Buy Now")
    features, *_ = environment.step("click[Features]")
    assert features.endswith(" [SEP] ".join(first.bullets))


@pytest.mark.parametrize(("observation", "name"), [("text", "ASIN"), ("compact", "number")])
def test_rules_name_the_product_label(observation, name):
    environment = start(observation=observation)
    assert f"the label of a product is its {name}" in environment.rules()
    environment.step("search[shirt]")
    assert environment.shop.labels(environment.visit)[0].isdecimal() == (name == "number")


def test_results_are_paged_up_to_fifty():
    environment = start()
    assert sum("sturdy" in product.title for product in environment.catalogue.products) > 50
    environment.step("search[sturdy]")
    pages = [environment.shop.shown(environment.visit)]
    while "next >" in environment.clicks:
        environment.step("click[next >]")
        pages.append(environment.shop.shown(environment.visit))
    assert [len(page) for page in pages] == [10] * 5
    assert len({place for page in pages for place in page}) == 50
    environment.step("click[< prev]")
    assert environment.shop.shown(environment.visit) == pages[-2]


def test_new_search_clears_options():
    environment = start()
    asin, options = next((p.asin.lower(), p.options) for p in environment.catalogue.products if len(p.options) == 2)
    title = environment.catalogue.product(asin).title
    (name, (one, other, *_)), (_, (second, *_)) = options
    environment.step(f"search[{title}]")
    while asin not in environment.clicks:
        environment.step("click[next >]")
    play(environment, f"click[{asin}]", f"click[{one}]", f"click[{second}]")
    assert set(environment.visit.values) == {one, second}
    assert f"You have chosen: {', '.join(environment.visit.values)}" in environment.render()
    _, _, _, _, info = environment.step(f"click[{one}]")
    assert not info["effective"]
    environment.step(f"click[{other.upper()}]")
    assert dict(environment.visit.chosen)[name] == other
    play(environment, "click[features]", "click[< prev]")
    assert set(environment.visit.values) == {other, second}
    play(environment, "click[back to search]", f"search[{title}]")
    assert environment.visit.values == ()


def test_search_needs_search_page_and_word():
    environment = start()
    assert not play(environment, "search[?]")[4]["effective"]
    assert play(environment, "search[zzzz]")[4]["effective"]
    assert environment.actions == ("click[back to search]",)
    assert not play(environment, "search[soft]")[4]["effective"]


HOSTILE = [
    *("search[search[soft]]", "search[search[soft", "click[[buy now]]", "search[]", "search", "click[a]b", ""),
    *("search[a\x00b]", "search[a\x1bb]", f"search[{'a' * 10_000}]", "search[" * 5000, "[" * 10_000, "buy now"),
]


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: repr(text[:20]))
def test_hostile_text_is_no_action(text):
    assert GRAMMAR.read(text) is None
    environment = start()
    before = environment.state_digest()
    with pytest.raises(EnvironmentFault):
        environment.step(text)
    assert environment.state_digest() == before


@given(text=st.text(max_size=60), kind=st.sampled_from(["search", "click"]), page=st.integers(0, 3))
@settings(max_examples=40, deadline=None)
def test_what_the_grammar_allows_never_raises(text, kind, page):
    environment = start()
    play_to = [f"search[{environment.goal.query}]", "", "click[description]"]
    for step in play_to[:page]:
        environment.step(step or environment.actions[-1])
    action = GRAMMAR.read(f"{kind}[{text}]")
    if action is not None:
        before = environment.state_digest()
        *_, info = environment.step(action)
        assert info["effective"] == (environment.state_digest() != before)


def test_purchase_pays_score_or_success():
    scores = {}
    for pays in ("score", "success"):
        environment = start(pays=pays)
        first = f"click[{environment.catalogue.products[0].asin.lower()}]"
        environment.step(f"search[{environment.catalogue.products[0].title}]")
        while first not in environment.actions:
            environment.step("click[next >]")
        _, scores[pays], terminated, _, info = play(environment, first, "click[buy now]")
        assert terminated
        assert info["score"] == environment.score
        assert info["nouns"] == "list"
        assert not environment.is_success
    assert scores == {"score": environment.score, "success": 0.0}
    with pytest.raises(EnvironmentFault, match="has ended with the purchase"):
        environment.step("click[buy now]")


def test_solver_beats_rule_policy():
    chosen = WebShopSettings(observation="compact", results_per_page=4, **SMALL)
    assert results_of(solver, chosen, range(100)) == (1.0, 1.0)
    mean, success = results_of(rule_policy, chosen, range(100))
    assert 0.4 < mean < 0.8
    assert success < 0.2


def test_near_misses_score_above_half():
    environment = start()
    rng, scores = np.random.default_rng(0), []
    for seed in range(60):
        environment.reset(seed=seed)
        environment.step(f"search[{environment.goal.title}]")
        environment.step(f"click[{rng.choice([a for a in environment.clicks if len(a) == 3])}]")
        scores.append(play(environment, *(f"click[{o}]" for o in environment.goal.options), "click[buy now]")[1])
    assert sum(0.5 <= worth <= 0.9 for worth in scores) > 30


def test_hidden_attribute_stands_on_features_alone():
    environment = start(num_hidden=1)
    goal = environment.goal
    _, _, hidden = goal.attributes
    assert hidden in goal.instruction
    shown = {"item": play(environment, f"search[{goal.title}]", f"click[{goal.asin.lower()}]")[0]}
    for page in ("description", "features", "reviews"):
        shown[page] = play(environment, f"click[{page}]")[0]
        environment.step("click[< prev]")
    assert [page for page in shown if hidden in shown[page].replace(goal.instruction, "")] == ["features"]


def test_environments_share_a_catalogue():
    one, other = start(0), start(1, observation="compact")
    assert one.catalogue is other.catalogue
    copy = one.clone(3)
    copy.step("search[soft]")
    assert one.visit.page == "search"
    assert copy.catalogue is one.catalogue


def test_search_breaks_ties_by_product_number():
    index = ProductIndex(["red coat", "red coat", "blue coat", "red hat"], ["B3", "B1", "B2", "B0"])
    assert index.search("red coat") == (1, 0, 3, 2)  # each word is in three of four: blue coat and red hat tie
    assert index.search("nothing known") == ()
    assert words("A5 is-it x soft") == ["a5", "is", "it", "soft"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"goals": "human"}, "set folder"),
        ({"nouns": "spacy"}, "set folder"),
        ({"num_products": 70_000}, "at most 60,000"),
        ({"digest": "0" * 16}, "leave digest out"),
    ],
)
def test_settings_without_effect_are_refused(changed, message):
    with pytest.raises(ValueError, match=message):
        WebShopSettings(**changed)


def test_admissible_actions_are_listed_if_enabled():
    environment = start(should_list_admissible=True)
    assert environment.render().endswith("\nAdmissible: search[words]")
    environment.step("search[soft]")
    assert environment.render().endswith(f"\nAdmissible: {', '.join(environment.actions)}")
    assert "click[next >]" in environment.actions
