"""The user's files: what is read, what is refused by name, and the digest that detects changed files."""

import json
import logging
import random

import pytest
from pydantic import ValidationError

from starpo.ragen.core.errors import ConfigError
from starpo.ragen.envs.check import check
from starpo.ragen.envs.webshop.environment import GRAMMAR, WebShop, WebShopSettings
from starpo.ragen.envs.webshop.files import files_digest, read_products
from tests.ragen.envs.webshop.players import results_of, rule_policy, solver


def item(asin="B1", **changed):
    facts = {
        "asin": asin,
        "name": f"Acme Soft Boots {asin}",
        "full_description": "Boots for\nwinter.",
        "small_description": ["Warm lining", "Rubber sole"],
        "pricing": "$10.00$20.00",
        "category": "fashion",
        "query": "Boots ",
        "product_category": "Shoes \u203a Boots",
        "customization_options": {"Color": [{"value": "Red/Blue"}, {"value": "grey [new]"}], "Style": None},
        "images": ["x.jpg"],
    }
    return facts | changed


def wishes(*asins):
    known = {"attributes": ["soft lining"], "instruction": "Find me soft boots", "instruction_attributes": ["soft"]}
    return dict.fromkeys(asins, known)


def human(*asins):
    wish = {"instruction": "i want soft boots.", "instruction_attributes": ["soft"], "instruction_options": ["grey"]}
    return {asin: [wish, {"instruction": "boots", "instruction_attributes": []}] for asin in asins}


@pytest.fixture
def folder(tmp_path):
    def write(items, wished, human_wishes=None):
        (tmp_path / "items_shuffle_1000.json").write_text(json.dumps(items))
        (tmp_path / "items_ins_v2_1000.json").write_text(json.dumps(wished))
        if human_wishes is not None:
            (tmp_path / "items_human_ins.json").write_text(json.dumps(human_wishes))
        return str(tmp_path)

    return write


def test_product_fields_match_webshop(folder):
    (product,), refused = read_products(folder([item()], wishes("B1"), human("B1")), None)
    assert (product.query, product.categories, product.price_range) == ("boots", ("Shoes", "Boots"), (10.0, 20.0))
    assert product.options == (("color", ("red | blue", "grey (new)")),)
    assert (product.description, product.price_tag) == ("Boots for winter.", "$10 to $20")
    assert product.indexed == "acme soft boots b1 boots for winter. warm lining color: red | blue, grey (new)"
    assert (product.wish.text, product.wish.attributes, product.attributes) == (
        "Find me soft boots",
        ("soft",),
        ("soft lining",),
    )
    assert [(wish.text, wish.options) for wish in product.human_wishes] == [("i want soft boots", ("grey",))]
    assert [refusal.what for refusal in refused] == ["wish 1 for 'B1'"]


BAD = {
    "no object": ("text", "product 0", "no JSON object"),
    "no asin": (item(""), "product 0", "asin is missing"),
    "a long asin": (item("B" * 11), "BBBBBBBBBBB", "at most 10 characters"),
    "an asin of two actions": (item("B||0"), "B||0", "without blanks, brackets and ||"),
    "no name": (item("B0", name=None), "B0", "name is missing"),
    "no query": ({k: v for k, v in item("B0").items() if k != "query"}, "B0", "query is missing"),
    "no category": (item("B0", product_category="  "), "B0", "product_category is missing"),
    "an odd price": (item("B0", pricing="ask us"), "B0", "pricing 'ask us' is not an amount"),
    "an odd option": (item("B0", customization_options={"c": [{"image": "x"}]}), "B0", "has a value without text"),
    "an unreadable option": (item("B0", customization_options={"c": [{"value": "\0"}]}), "B0", "value without text"),
    "a number for values": (item("B0", customization_options={"c": 5}), "B0", "customization_options.c is not a list"),
    "odd options": (item("B0", customization_options=["red"]), "B0", "is not a JSON object"),
}


@pytest.mark.parametrize("fault", BAD)
def test_bad_product_is_skipped_with_reason(folder, fault):
    bad, what, why = BAD[fault]
    products, refused = read_products(folder([bad, item()], wishes("B1")), None)
    assert [product.asin for product in products] == ["B1"]
    (refusal,) = refused
    assert what in refusal.what
    assert why in refusal.why


@pytest.mark.parametrize("field", ["attributes", "instruction_attributes"])
@pytest.mark.parametrize("value", [5, "soft"])
def test_product_with_non_list_is_skipped(folder, field, value):
    wished = wishes("B0", "B1")
    wished["B0"] = wished["B0"] | {field: value}
    products, refused = read_products(folder([item("B0"), item("B1")], wished), None)
    assert [product.asin for product in products] == ["B1"]
    assert list(map(str, refused)) == [f"'B0' ({field} is not a list)"]


@pytest.mark.parametrize("field", ["instruction_attributes", "instruction_options"])
@pytest.mark.parametrize("value", [5, "soft"])
def test_wish_with_non_list_is_skipped(folder, field, value):
    human_wishes = {"B1": [{"instruction": "boots", "instruction_attributes": ["soft"], field: value}]}
    (product,), refused = read_products(folder([item()], wishes("B1"), human_wishes), None)
    assert product.human_wishes == ()
    assert list(map(str, refused)) == [f"wish 0 for 'B1' ({field} is not a list)"]


@pytest.mark.parametrize(
    ("value", "label"), [("a||b", "a|b"), ("a|||b", "a|b"), ("a||||b", "a|b"), ("a//b", "a | | b")]
)
def test_a_value_never_separates_actions(folder, value, label):
    (product,), _ = read_products(folder([item(customization_options={"Size": [{"value": value}]})], {}), None)
    assert product.options == (("size", (label,)),)


def test_skipped_products_are_counted_and_logged(folder, caplog):
    products = [item(f"B{n}") for n in range(10)] + [item("C1", name=""), item("B1")]
    settings = WebShopSettings(folder=folder(products, wishes(*(f"B{n}" for n in range(10)))), split="all")
    with caplog.at_level(logging.WARNING):
        _, info = WebShop(settings).reset(seed=0)
    assert info["num_refused"] == 2
    assert "2 products and wishes" in caplog.text
    assert "'C1' (name is missing), 'B1' (an earlier product has the same asin)" in caplog.text


def test_changed_files_are_another_environment(folder):
    settings = WebShopSettings(folder=folder([item(), item("B2")], wishes("B1", "B2")), split="all")
    assert settings.digest == files_digest(settings.folder)
    assert WebShopSettings.model_validate_json(settings.model_dump_json()) == settings
    WebShop(settings).reset(seed=0)
    folder([item(), item("B3")], wishes("B1", "B3"))
    assert WebShopSettings(folder=settings.folder, split="all").digest != settings.digest
    assert WebShopSettings.model_validate_json(settings.model_dump_json()) == settings  # read without the old files
    with pytest.raises(ConfigError, match=f"expected {settings.digest}: they were changed since"):
        WebShop(settings.model_copy(update={"num_products": 1000}))


def test_user_files_keep_conventions_and_solve(folder):
    asins = [f"B{n}" for n in range(12)]
    settings = WebShopSettings(folder=folder([item(a) for a in asins], wishes(*asins)), split="all")
    assert check(settings, should_start_process=False) == []
    assert results_of(solver, settings, range(8)) == (1.0, 1.0)
    assert results_of(rule_policy, settings, range(8))[0] >= 0.5


def test_human_goals(folder):
    settings = WebShopSettings(folder=folder([item()], wishes("B1"), human("B1")), goals="human", split="all")
    environment = WebShop(settings)
    environment.reset(seed=0)
    assert environment.goal.instruction.startswith("i want soft boots, and price lower than ")
    for action in ("search[soft boots]", "click[b1]", "click[grey (new)]", "click[buy now]"):
        *_, info = environment.step(action)
    assert (info["options_met"], info["nouns"], environment.is_success) == (1, "rule", True)


@pytest.mark.parametrize("text", [" ".join(f"word{n}" for n in range(200)), "o" * 500])
def test_random_search_in_long_instruction_parses(folder, text):
    human_wishes = {"B1": [{"instruction": text, "instruction_attributes": ["soft"]}]}
    environment = WebShop(WebShopSettings(folder=folder([item()], {}, human_wishes), goals="human", split="all"))
    environment.reset(seed=0)
    for seed in range(8):
        action = environment.random_action(random.Random(seed))
        assert GRAMMAR.read(action) == action


def test_wrong_folders_are_one_clear_error(folder, tmp_path):
    with pytest.raises(ValidationError, match=r"has no file items_shuffle\*.json"):
        WebShopSettings(folder=str(tmp_path / "nowhere"))
    path = folder([item("")], {})
    with pytest.raises(ConfigError, match="none of 1 products can be used"):
        read_products(path, None)
    (tmp_path / "items_ins_v2_1000.json").write_text("{")
    with pytest.raises(ConfigError, match="is not JSON"):
        read_products(path, None)
    (tmp_path / "items_shuffle.json").write_text("[]")
    with pytest.raises(ValidationError, match="leave one file"):
        WebShopSettings(folder=path)
