"""Choosing runs and looking at them beside each other, in a real browser."""

import pytest

from starpo.ragen.store import Store
from tests.ragen.evidence.view.conftest import Browser, num_points
from tests.ragen.evidence.view.runs_to_compare import add_run, evaluate

pytestmark = pytest.mark.ci
ATTACK = "<img src=x onerror=\"document.title='owned'\">"
HALF, MOST = [True, False] * 8, [True] * 15 + [False]


def open_page(browser: Browser, address: str, condition: str) -> None:
    browser.driver.get("about:blank")
    browser.driver.get(address)
    browser.wait_for(condition)


def complaints(browser: Browser) -> list[str]:
    return [text for text in browser.complaints() if not text.startswith("http://127.0.0.1:")]


def test_chosen_runs_open_beside_each_other(browser: Browser, served: str, store: Store) -> None:
    add_run(store, "a", [HALF, HALF], preset=ATTACK)
    add_run(store, "b", [HALF, MOST], preset=ATTACK, note=ATTACK)
    open_page(browser, f"{served}/", "document.querySelectorAll('#runs tbody tr').length === 3")
    assert browser.run("return document.getElementById('compare').href") == ""
    for run in "ab":
        browser.run("document.querySelector(`[data-run=${arguments[0]}] input`).click()", run)
    assert browser.text("#compare") == "Compare 2"
    browser.run("document.getElementById('compare').click()")
    browser.wait_for("location.pathname === '/compare' && document.documentElement.dataset.ready")
    assert browser.run("return location.search") == "?run=a&run=b"
    assert browser.driver.title == "Compare 2 runs · StarPO"
    [first, second] = browser.texts("#rows tbody tr")
    assert ATTACK in first
    assert "+43.8 points" in second  # 7 of 16
    assert "higher than the first run" in second
    assert browser.texts("#panels .panel h3") == ["Success on sokoban", "Training success"]
    assert browser.texts("#panels .panel:first-child .by-line .of") == ["a", "b"]
    assert ATTACK in browser.text("#differing")
    assert browser.count("img") == 0
    assert complaints(browser) == []


def test_comparison_grows_while_looked_at(browser: Browser, served: str, store: Store) -> None:
    for seed, name in enumerate("ab"):
        add_run(store, name, [HALF], seed=seed)
    store.runs.set_state("b", "running", "rollout")
    ready = "document.documentElement.dataset.ready"
    open_page(browser, f"{served}/compare?run=a&run=b&run=nobody", ready)
    assert "there is no run 'nobody'" in browser.text("#refused")
    assert browser.texts("#panels .panel:first-child .by-line .of") == ["seeds 0, 1 of mine"]
    browser.run("document.getElementById('singly').click()")
    assert browser.texts("#panels .panel:first-child .by-line .of") == ["a", "b"]
    browser.wait_for(f"{num_points('#panels .panel:first-child')} === 2")
    evaluate(store, "b", 1, MOST)
    browser.wait_for(f"{num_points('#panels .panel:first-child')} === 3")
    assert "93.8%" in browser.text("#rows [data-run=b]")
    browser.press("#panels svg", "End")
    assert browser.texts("#panels .panel:first-child .by-line .value") == ["–", "93.8% (83.8% to 104%)"]
    store.runs.set_state("b", "failed", "the disk is full")
    browser.wait_for("document.querySelector('#rows [data-run=b] .pill').textContent === 'failed'")
    assert complaints(browser) == []


def test_compared_curves_have_legend(browser: Browser, served: str, store: Store) -> None:
    for seed, name in enumerate("ab"):
        add_run(store, name, [HALF, MOST, HALF], seed=seed)
    open_page(browser, f"{served}/compare?run=a&run=b", "document.documentElement.dataset.ready")
    assert browser.texts("#legend span") == ["measured", "joins measured points", "from the lowest seed to the highest"]
    assert browser.run("return document.querySelector('#panels h3').title").startswith("Episodes on the fixed panel")
    browser.run("document.getElementById('singly').click()")
    assert browser.texts("#legend span") == ["measured", "joins measured points", "95% interval"]
    figure = browser.run(
        "return figureText({ ...data.panels[0], lines: data.panels[0].lines.slice(0, 1) },"
        " document.querySelector('#panels svg'), 'Runs a, b', [])"
    )
    assert ">a</text>" in figure  # the title names no run
    assert "Runs a, b. Drawn by StarPO." in figure


def test_filters_stand_in_the_address(browser: Browser, served: str, store: Store) -> None:
    add_run(store, "a", environment={"type": "bandit"})
    store.runs.set_state("a", "cancelled", "")
    add_run(store, "b")
    rows = "document.querySelectorAll('#runs tbody tr').length"
    open_page(browser, f"{served}/#environment=sokoban&state=completed", f"{rows} === 1")
    assert browser.texts("#runs tbody a") == ["b"]
    browser.put("#state", "")
    assert browser.run("return location.hash") == "#environment=sokoban"
    assert browser.texts("#runs tbody a") == ["b", "hostile"]
    browser.put("#environment", "bandit")
    assert browser.texts("#runs tbody a") == ["a"]
    store.runs.set_state("b", "running", "rollout")  # then the list is asked for every second
    browser.run("document.querySelector('#runs input').focus()")
    store.runs.set_state("a", "running", "rollout")
    browser.wait_for("document.querySelector('#runs .pill').textContent === 'running'")
    assert browser.run("return document.activeElement.closest('tr').dataset.run") == "a"  # though it was drawn anew
    browser.run("location.hash = '#text=nothing'")
    browser.wait_for(f"{rows} === 0")
    assert browser.run("return document.getElementById('environment').value") == ""
    assert complaints(browser) == []
