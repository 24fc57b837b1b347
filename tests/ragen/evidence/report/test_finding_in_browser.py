"""The report in a real browser: search, the keyboard, network isolation, missing parts."""

import json
from pathlib import Path

import pytest

from starpo.ragen.evidence.report.data import gather
from starpo.ragen.evidence.report.page import render_report
from starpo.ragen.store import Store
from tests.ragen.evidence.report.stored import rows

pytestmark = pytest.mark.ci


def find(page, **choices: str) -> str:
    """Choose facets, and return the sentence about the results."""
    before = page.run("return document.getElementById('finder').dataset.searched || '0'")
    for name, value in choices.items():
        selector = (
            "#finder input[type=search]"
            if name == "text"
            else f"#finder [data-facet='{name}'], #finder [data-bound='{name.replace('_', '-')}']"
        )
        page.put(selector, value)
    page.wait_for(f"Number(document.getElementById('finder').dataset.searched || 0) > {before}")
    page.run("return new Promise((done) => setTimeout(done, 200))")  # typing takes effect after a short delay
    return page.text(".search-status")


def test_filters_show_matches_and_count(page, stored_run: Store) -> None:
    page.run("document.getElementById('find').scrollIntoView()")
    page.wait_for("document.getElementById('finder').dataset.searched")
    assert page.text(".search-status") == "33 of 33 trajectories, in 5 iterations."
    selections = [row for i in range(4) for row in rows(stored_run, i, "variance_filter", "selection")]
    kept = 2 * sum(row["kept"] for row in selections)
    assert f"kept ({kept})" in page.texts("[data-facet=decision] option")
    assert find(page, decision="kept").startswith(f"{kept} of 33 trajectories")
    positive = sum(r["advantage"] > 0 for i in range(4) for r in rows(stored_run, i, "update", "samples"))
    assert find(page, advantage="positive").startswith(f"{positive} of 33")
    assert find(page, decision="dropped") == "None of 33 trajectories."
    page.click("#finder .clear")
    page.wait_for("document.querySelector('.search-status').textContent.startsWith('33 of 33')")
    turns = [row for i in range(4) for row in rows(stored_run, i, "rollout", "turns")]
    wrong = {row["trajectory_id"] for row in turns if row["status"] == "format_error"}
    episodes = [row for i in (0, 2, 4) for row in rows(stored_run, i, "evaluate:sokoban", "episodes")]
    num_wrong = len(wrong) + sum(row["num_format_errors"] > 0 for row in episodes)
    assert find(page, format="errors").startswith(f"{num_wrong} of 33")
    assert find(page, format="", source="sokoban").startswith("9 of 33 trajectories, in 3 iterations")
    high = sum(row["episode_return"] > -0.45 for row in episodes)
    assert 0 < high < 9
    assert find(page, return_low="-0.45").startswith(f"{high} of 33")
    succeeded = sum(row["success"] for row in turns + episodes)
    assert find(page, return_low="", source="", outcome="success").startswith(f"{succeeded} of 33")
    assert f"success ({succeeded})" in page.texts("[data-facet=outcome] option")
    assert find(page, outcome="", iteration_low="2", iteration_high="3").startswith("15 of 33")


def test_search_finds_text_and_opens_turn(page) -> None:
    page.run("document.getElementById('find').scrollIntoView()")
    count = find(page, text="ONERROR")
    assert " of 33 trajectories" in count
    hits = page.texts(".results .hit")
    assert {hit.split(" · ")[0].split("iteration ")[1] for hit in hits} >= {"0", "1", "2", "3"}
    assert set(page.texts(".results mark")) == {"onerror"}
    page.follow(".results .hit")
    assert "turn=" in page.run("return location.hash")
    assert any("onerror" in text for text in page.texts(".turn.current pre"))
    assert find(page, text="no response says this") == "None of 33 trajectories."


def test_map_of_decisions_opens_groups(page) -> None:
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        page.press("canvas.map", key)
    assert page.text("#heatmap .readout").startswith("Iteration 1, group i1-g")
    page.press("canvas.map", "Enter")
    page.wait_for("document.documentElement.dataset.ready.startsWith('#iteration=1&group=i1-g')")
    page.run(
        """
        const canvas = document.querySelector('canvas.map');
        const box = canvas.getBoundingClientRect();
        const place = { clientX: box.left + 2, clientY: box.top + 2, bubbles: true };
        canvas.dispatchEvent(new PointerEvent('pointermove', place));
        canvas.dispatchEvent(new MouseEvent('click', place));
        """
    )
    page.wait_for("document.documentElement.dataset.ready.startsWith('#iteration=0&group=i0-g')")
    page.run("document.querySelector('#decisions details').open = true")
    page.wait_for("document.querySelectorAll('#decision-table tbody tr').length === 4")
    assert " of 3" in page.text("#decision-table tbody tr td:nth-child(2)")


def test_tab_reaches_every_kind_of_control(page) -> None:
    """Every control can be focused and has an accessible name."""
    nameless = page.run(
        """
        const named = (e) => [e, e.closest('label')].some((x) => x?.textContent.trim()) || e.getAttribute('aria-label');
        return Array.from(document.querySelectorAll('a[href], button, select, input, [tabindex="0"]'))
          .filter((e) => e.tabIndex < 0 || !named(e)).map((e) => e.outerHTML.slice(0, 100));
        """
    )
    assert nameless == []
    for selector in (".player", ".tokens", "canvas.map", "#panels svg", ".members a", ".hit, #finder input"):
        page.run("document.querySelector(arguments[0]).focus()", selector)
        assert page.run("return document.activeElement.matches(arguments[0])", selector), selector


def test_page_may_not_connect(page) -> None:
    blocked = page.run(
        """
        return new Promise((done) => {
          document.addEventListener('securitypolicyviolation', (event) => done(event.effectiveDirective));
          fetch('http://127.0.0.1:9/').catch(() => 0);
        })
        """
    )
    assert blocked == "connect-src"
    assert len(page.complaints()) <= 3  # the attempt itself; read here, so that the fixture does not see it


def test_incomplete_run_shows_available_parts(browser, damaged_run: Store, tmp_path: Path) -> None:
    import shutil

    for iteration, stage, kind in (
        (0, "reward", "rewards"),
        (1, "variance_filter", "selection"),
        (3, "rollout", "turns"),
    ):
        shutil.rmtree(Path(damaged_run.url) / kind / damaged_run.runs.iteration("hostile", iteration)[stage][kind])
    file = tmp_path / "damaged.html"
    file.write_text(render_report(gather(damaged_run, "hostile")), encoding="utf-8")
    browser.open(file)
    for address in ("#iteration=0&source=training", "#iteration=1&source=training", "#iteration=3"):
        browser.go(address)
    assert browser.count("#missing tbody tr") == 3
    assert browser.complaints() == []
    assert json.dumps(browser.texts("#missing td")).count("no artifact") == 3
