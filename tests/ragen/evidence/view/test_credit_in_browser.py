"""Which move lost it: true credit beside the estimated one at every turn, on a live page."""

import pytest

from starpo.ragen.evidence.report.credit import own_estimator
from starpo.ragen.store import Store
from tests.ragen.evidence.report.stored import rows
from tests.ragen.evidence.view.conftest import Browser
from tests.ragen.evidence.view.credited import CONTINUATIONS, OTHER, store_credit

pytestmark = pytest.mark.ci


@pytest.fixture
def failed(store: Store) -> str:
    """A failed trajectory of iteration 1 with the most turns."""
    turns = rows(store, 1, "rollout", "turns")
    won = {row["trajectory_id"] for row in turns if row["success"]}
    return max((row for row in turns if row["trajectory_id"] not in won), key=lambda row: row["turn"])["trajectory_id"]


@pytest.fixture
def used(store: Store) -> str:
    return own_estimator("hostile", store.runs.get("hostile").config, 1)


def opened(browser: Browser, served: str, trajectory: str) -> None:
    browser.driver.get("about:blank")
    browser.driver.get(f"{served}/run/hostile#iteration=1&trajectory={trajectory}")
    browser.wait_for("document.querySelectorAll('.turn').length")


def test_turns_show_true_and_estimated_credit(browser: Browser, served: str, store: Store, failed, used) -> None:
    store_credit(store, 1, used)
    opened(browser, served, failed)
    turns = [row for row in rows(store, 1, "rollout", "turns") if row["trajectory_id"] == failed]
    lines = browser.texts(".turn .credit")
    assert len(lines) == len(turns) > 1
    assert "true advantage −1 ± 0.25" in lines[0]
    assert f"value 10 before (critic 0.5), 9 after · {CONTINUATIONS} continuations" in lines[0]
    assert f"estimated +0.5 by {used}" in lines[0]
    assert browser.texts(".turn[data-turn='0'] .credit dt") == [used, OTHER]
    assert len(turns) == 3  # worth 10, 9 and 6 before, and nothing at the end
    assert browser.texts(".decision") == ["this turn lost it"]
    assert browser.count(".turn.lost[data-turn='2']") == 1
    assert "Lost atturn 2: −6" in browser.texts(".inline-facts div")
    browser.driver.get("about:blank")


def test_page_without_credit_says_nothing(browser: Browser, served: str, failed) -> None:
    opened(browser, served, failed)
    assert browser.count(".credit") == 0
    assert browser.count(".lost") == 0
    browser.driver.get("about:blank")


def test_credit_measured_later_appears(browser: Browser, served: str, store: Store, failed, used) -> None:
    opened(browser, served, failed)
    store_credit(store, 1, used)
    opened(browser, served, failed)
    assert browser.count(".credit") > 1
    browser.driver.get("about:blank")
