"""The live pages in a real browser: they grow while one looks, and what is looked at stays."""

import json
import urllib.request
from pathlib import Path

import pytest

from starpo.ragen.store import Store
from tests.ragen.evidence.view.conftest import Browser, num_points

pytestmark = pytest.mark.ci
NEWEST = 3


@pytest.fixture
def without_newest(store: Store) -> dict[str, dict[str, str]]:
    """Take the newest iterations from the run's record, and return the stages of one of them."""
    stages = store.runs.iteration("hostile", NEWEST)
    for iteration in (NEWEST, NEWEST + 1):
        for file in Path(store.url).glob(f"runs/hostile/iterations/*{iteration}.json"):
            file.unlink()
    return stages


def open_page(browser: Browser, address: str) -> None:
    browser.driver.get("about:blank")
    browser.driver.get(address)


def requests(browser: Browser) -> list[str]:
    return [name for name in browser.complaints() if not name.startswith("http://127.0.0.1:")]


def test_arrival_shows_trajectory(browser: Browser, served: str) -> None:
    open_page(browser, f"{served}/run/hostile#iteration=1&group=i1-g1")
    browser.wait_for("document.documentElement.dataset.ready")
    assert browser.text(".trajectory-title").startswith("Iteration 1, trajectory i1-g1-")
    assert browser.count(".turn .token") > 0
    assert browser.count(".cells a") > 0


def test_page_grows_without_reload(browser: Browser, served: str, store: Store, without_newest) -> None:
    open_page(browser, f"{served}/run/hostile#iteration=1&group=i1-g1")
    browser.wait_for("document.documentElement.dataset.ready")
    points = num_points("#panels .panel:nth-child(2)")
    before, title = browser.run(f"return {points}"), browser.text(".trajectory-title")
    for stage, keys in without_newest.items():
        store.runs.record_stage("hostile", NEWEST, stage, keys)
    browser.wait_for(f"data.last_iteration === {NEWEST}")
    browser.wait_for("document.documentElement.dataset.version === data.status.version")
    assert browser.text(".trajectory-title") == title  # what is looked at stays
    assert browser.run(f"return {points}") == before  # out of view: drawn as soon as one looks
    browser.run("window.scrollTo(0, 0)")
    browser.wait_for(f"{points} > {before}")
    with urllib.request.urlopen(f"{served}/run/hostile/data") as answer:
        whole = json.load(answer)
    for kind in ("panels", "metrics", "decisions", "artifacts", "glossary"):
        assert json.loads(browser.run(f"return JSON.stringify(data.{kind})")) == whole[kind], kind
    assert len(browser.run("return data.batches")) == len(whole["batches"])
    browser.go(f"#iteration={NEWEST}&group=i{NEWEST}-g0")
    assert browser.text(".trajectory-title").startswith(f"Iteration {NEWEST}, trajectory i{NEWEST}-g0-")
    assert browser.count(".turn .token") > 0
    assert requests(browser) == []
    assert browser.driver.title == "hostile · StarPO run"


def test_page_of_new_run_begins_empty(browser: Browser, served: str, store: Store, without_newest) -> None:
    config = store.runs.get("hostile").config
    store.runs.create("new", flow="starpo", preset="mine", config=config)
    open_page(browser, f"{served}/run/new")
    browser.wait_for("document.documentElement.dataset.ready")
    assert browser.text("#viewer") == "No trajectory has been stored yet."
    assert browser.text("#panels") == "No metric has been stored yet."
    for stage, keys in without_newest.items():
        store.runs.record_stage("new", 0, stage, keys)
    browser.wait_for("document.querySelectorAll('.turn .token').length > 0")
    assert browser.text(".trajectory-title").startswith("Iteration 0, ")


def test_state_is_kept_up_to_date(browser: Browser, served: str, store: Store) -> None:
    store.runs.set_state("hostile", "running", "rollout response 7 of at most 9", {"seconds_left": 7200.0})
    open_page(browser, f"{served}/run/hostile")
    browser.wait_for("document.getElementById('activity').textContent.includes('response 7 of at most 9')")
    assert "2 h left" in browser.text("#activity")
    store.runs.set_state("hostile", "failed", "the disk is full")
    browser.wait_for("document.getElementById('activity').textContent.startsWith('failed')")
    store.runs.forget("hostile")
    browser.wait_for("document.getElementById('activity').textContent.includes('there is no run')")


def test_list_of_runs_grows(browser: Browser, served: str, store: Store) -> None:
    open_page(browser, f"{served}/")
    browser.wait_for("document.querySelectorAll('#runs tbody tr').length === 1")
    attack = "<img src=x onerror=\"document.title='owned'\">"
    store.runs.create("second", flow="starpo", preset=attack, config=store.runs.get("hostile").config)
    store.runs.set_state("second", "running", attack)
    browser.wait_for("document.querySelectorAll('#runs tbody tr').length === 2")
    browser.put("#filter", "hosti")
    assert browser.texts("#runs tbody a") == ["hostile"]
    assert browser.text("#counted") == "1 of 2 runs"
    browser.put("#filter", "nothing like it")
    assert browser.text("#runs") == "No run matches these filters."
    assert browser.driver.title == "Runs · StarPO"
    assert requests(browser) == []


def test_search_opens_what_it_found(browser: Browser, served: str, store: Store, hostile_texts) -> None:
    open_page(browser, f"{served}/run/hostile")
    browser.wait_for("document.documentElement.dataset.ready")
    browser.put("[name=text]", hostile_texts[1])
    browser.run("document.querySelector('#search form').requestSubmit()")
    browser.wait_for("document.querySelectorAll('#search .hit').length > 0")
    assert browser.text("#search mark") == hostile_texts[1]
    assert browser.count("#search img") == 0
    browser.follow("#search .hit")
    assert browser.run(
        "return [...document.querySelectorAll('.turn pre')].some((e) => e.textContent.includes(arguments[0]))",
        hostile_texts[1],
    )
    browser.put("[name=first]", "99")
    browser.run("document.querySelector('#search form').requestSubmit()")
    browser.wait_for("document.querySelector('#search .search-status').textContent.startsWith('0 of 0')")
    assert requests(browser) == []
