"""The ten questions of docs/view.md, each from the list of runs by what one can click, without typing an address."""

import json

import pytest

from starpo.ragen.store import Store
from tests.ragen.evidence.view.conftest import Browser, panel_episodes, store_evaluation

pytestmark = pytest.mark.ci
READY = "document.documentElement.dataset.ready"
OTHERS = "Array.from(document.querySelectorAll('optgroup[label=\"Other runs\"] option'), (o) => o.value)"


@pytest.fixture
def runs(browser: Browser, served: str, store: Store) -> Browser:
    """The list of two runs: one that failed, and one with another setting that is at work."""
    config = dict(store.runs.get("hostile").config) | {"iterations": 9}
    store.runs.create("other", flow="starpo", preset="mine", config=config)
    state = {"seconds": 60.0, "seconds_left": 240.0}
    store.runs.set_state("other", "running", "rollout: 3 of 12 responses", state)
    browser.driver.get("about:blank")
    browser.driver.get(f"{served}/")
    browser.wait_for("document.querySelectorAll('#runs tbody tr').length === 2")
    yield browser
    browser.driver.get("about:blank")


@pytest.fixture
def run(runs: Browser) -> Browser:
    """The page of the failed run, opened from the list."""
    click(runs, "[data-run=hostile] a")
    runs.wait_for(f"location.pathname === '/run/hostile' && {READY}")
    return runs


def click(page: Browser, selector: str) -> None:
    page.wait_for(f"document.querySelector({json.dumps(selector)}) !== null")
    page.run("document.querySelector(arguments[0]).click()", selector)


def test_is_it_learning(run: Browser) -> None:
    assert run.text("#headline").startswith("Success ")
    assert "95% interval" in run.text("#headline")


def test_which_groups_taught_nothing(run: Browser) -> None:
    click(run, "nav a[href='#iteration']")
    rows = run.texts("#iteration-view .groups tbody tr")
    assert any("dropped" in row and "keep = 0.5" in row for row in rows)


def test_what_does_failure_look_like(run: Browser) -> None:
    click(run, "nav a[href='#trajectories']")
    before = run.text(".trajectory-title")
    run.press("body", "n")
    run.wait_for(f"document.querySelector('.trajectory-title').textContent !== {json.dumps(before)}")
    assert run.count(".turn .token") > 0


def open_last_evaluation(page: Browser) -> None:
    page.put("[aria-label='Iteration of the trajectories']", "4")
    page.wait_for("document.querySelector('.trajectory-title').textContent.includes('after 4 updates')")


def test_same_state_before_training(run: Browser) -> None:
    open_last_evaluation(run)
    click(run, ".elsewhere .contrast")
    run.wait_for("document.querySelector('.trajectory.pair') !== null")
    assert run.text(".trajectory-title").endswith("beside that of iteration 0")


def test_where_do_runs_part(run: Browser, store: Store) -> None:
    store_evaluation(store, "other", 3, panel_episodes(4, 5, 1))
    open_last_evaluation(run)
    run.press("body", "j")
    run.wait_for(f"{OTHERS}.length > 0")
    run.put("[aria-label='Trajectory of the same state to show beside']", run.run(f"return {OTHERS}[0]"))
    run.wait_for("document.querySelector('.parting') !== null")
    assert run.text(".parting").startswith("They part here: ")


def test_is_the_format_the_trouble(run: Browser) -> None:
    assert "Well-formed responses" in run.texts("#panels .panel h3")
    run.put("#search [name=status]", "format_error")
    click(run, "#search form button")
    run.wait_for("document.querySelectorAll('#search a.hit').length > 0")


def test_what_does_reward_pay_for(run: Browser) -> None:
    click(run, "nav a[href='#trajectories']")
    assert any("environment" in text for text in run.texts(".turn"))


def test_when_did_alarm_ring(run: Browser) -> None:
    assert run.text("#verdict")
    click(run, "nav a[href='#collapse']")
    assert run.count("#timeline *") > 0


def test_which_settings_differ(runs: Browser) -> None:
    for name in ("hostile", "other"):
        click(runs, f"[data-run={name}] input")
    click(runs, "#compare")
    runs.wait_for(f"location.pathname === '/compare' && {READY}")
    assert runs.texts("#differing tbody tr td:first-child") == ["iterations"]


def test_how_long_will_it_take(runs: Browser) -> None:
    assert "4 min left" in runs.text("[data-run=other]")
    click(runs, "[data-run=other] a")
    runs.wait_for(f"location.pathname === '/run/other' && {READY}")
    assert "rollout: 3 of 12 responses" in runs.text("#activity")
    assert "4 min left" in runs.text("#activity")
