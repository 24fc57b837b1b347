"""The comparison page in a real browser."""

from pathlib import Path

import pytest

from starpo.ragen.evidence.report.comparing import gather_runs
from starpo.ragen.evidence.report.comparison_page import render_comparison
from starpo.ragen.store import Store

pytestmark = pytest.mark.integration


@pytest.fixture
def page(browser, stored_run: Store, tmp_path: Path):
    file = tmp_path / "comparison.html"
    runs = gather_runs(stored_run, ["hostile", "other"])
    file.write_text(render_comparison(runs, "Two runs", stored_run.url), encoding="utf-8")
    browser.open(file)
    yield browser
    assert browser.complaints() == []
    assert browser.driver.title == "Two runs · StarPO"


def test_every_part_is_drawn(page) -> None:
    assert page.count("#panels .panel") >= 8
    assert page.count("#panels .panel:nth-child(2) path.smooth") == 2
    dashes = page.run(
        "return Array.from(document.querySelectorAll('#panels .panel:nth-child(2) path.smooth'),"
        " (e) => e.getAttribute('stroke-dasharray'))"
    )
    assert dashes[0] != dashes[1]  # distinguishable without colour, too
    assert page.count("#success .mark") == 4
    assert page.count(".line-key svg") == 2


def test_a_run_can_be_hidden_and_shown_in_all_pictures(page) -> None:
    page.click(".runs tr:nth-child(2) .shows")
    lines = "Array.from(document.querySelectorAll('[data-line=other]'), (e) => getComputedStyle(e).display)"
    assert set(page.run(f"return {lines}")) == {"none"}
    page.run("document.querySelector('#curves details').open = true")
    page.wait_for("document.querySelectorAll('#other-panels .panel').length > 3")
    assert set(page.run(f"return {lines}")) == {"none"}
    page.press("#panels .panel:nth-child(2) svg", "Home")
    assert "other" not in page.text("#panels .panel:nth-child(2) .readout")
    page.click(".runs tr:nth-child(2) .shows")
    assert "none" not in page.run(f"return {lines}")
    page.press("#panels .panel:nth-child(2) svg", "Home")
    assert "other" in page.text("#panels .panel:nth-child(2) .readout")


@pytest.mark.parametrize("width", [1280, 420])
def test_nothing_is_wider_than_the_window(page, width: int) -> None:
    page.driver.set_window_size(width, 900)
    page.run("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    try:
        root = "document.documentElement"
        assert page.run(f"return {root}.scrollWidth <= {root}.clientWidth")
    finally:
        page.driver.set_window_size(1280, 900)
