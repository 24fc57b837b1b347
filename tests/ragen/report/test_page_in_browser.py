"""The page in a real browser: what it draws, and that hostile text stays text."""

import shutil
from collections.abc import Iterator

import pytest

from ragen.report.data import gather
from ragen.report.page import render_report
from ragen.store import Store

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed (pip install selenium)")

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(
        not (shutil.which("chromium") and shutil.which("chromedriver")),
        reason="no headless browser is installed (Debian: apt-get install chromium chromium-driver)",
    ),
]


@pytest.fixture(scope="module")
def browser(stored_run: Store, tmp_path_factory: pytest.TempPathFactory) -> Iterator:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render_report(gather(stored_run, "hostile")), encoding="utf-8")
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1280,900"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
    driver.set_script_timeout(20)
    driver.get(path.as_uri())
    wait_for(driver, "document.documentElement.dataset.ready === 'yes'")
    yield driver
    driver.quit()


def wait_for(driver, condition: str) -> None:
    """Wait until a JavaScript condition holds."""
    assert driver.execute_async_script(
        f"""
        const done = arguments[arguments.length - 1];
        const timer = setInterval(() => {{ if ({condition}) {{ clearInterval(timer); done(true); }} }}, 20);
        """
    )


def count(driver, selector: str) -> int:
    return driver.execute_script("return document.querySelectorAll(arguments[0]).length", selector)


def texts(driver, selector: str) -> list[str]:
    return driver.execute_script(
        "return Array.from(document.querySelectorAll(arguments[0]), (e) => e.textContent)", selector
    )


def test_no_error_is_logged_and_nothing_hostile_has_run(browser) -> None:
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
    assert browser.title == "hostile · StarPO run"


def test_every_part_is_drawn(browser) -> None:
    assert count(browser, "#panels .panel svg path.smooth") >= 6
    assert count(browser, "#stage-seconds rect") == 4 * 5
    assert count(browser, "#heatmap canvas") == 1
    assert count(browser, ".turn .board") >= 3


def test_hostile_thoughts_are_shown_as_text(browser, hostile_texts: tuple[str, ...]) -> None:
    shown = set()
    for iteration in range(4):
        browser.execute_script(
            "const choice = document.querySelector('#viewer select');"
            "choice.value = arguments[0]; choice.dispatchEvent(new Event('change'))",
            str(iteration),
        )
        wait_for(browser, f"document.querySelectorAll('#viewer select')[1].value.startsWith('i{iteration}-')")
        groups = browser.execute_script(
            "return Array.from(document.querySelectorAll('#viewer select')[1].options, (o) => o.value)"
        )
        for group in groups:
            for member in range(2):
                select(browser, group, member)
                shown |= set(texts(browser, ".turn pre"))
    for text in hostile_texts:
        assert any(text.replace("\x00", "\ufffd") in s or text in s for s in shown), text
    assert count(browser, ".turn img") == count(browser, ".turn script") == 0
    assert browser.title == "hostile · StarPO run"


def select(driver, group: str, member: int) -> None:
    driver.execute_async_script(
        """
        const done = arguments[2];
        const choice = document.querySelectorAll('#viewer select')[1];
        choice.value = arguments[0];
        choice.dispatchEvent(new Event('change'));
        const press = () => document.querySelectorAll('.member')[arguments[1]].click();
        setTimeout(() => { press(); setTimeout(() => done(), 30); }, 30);
        """,
        group,
        member,
    )


def test_search_finds_text_in_all_iterations_and_leads_to_it(browser) -> None:
    browser.execute_script(
        "const box = document.querySelector('input[type=search]');"
        "box.value = 'ONERROR'; box.dispatchEvent(new Event('input'))"
    )
    wait_for(browser, "document.querySelectorAll('.found .hit').length > 0")
    hits = texts(browser, ".found .hit")
    assert {hit.split(" · ")[0] for hit in hits} == {f"iteration {i}" for i in range(4)}
    assert set(texts(browser, ".found mark")) == {"onerror"}
    browser.execute_script("document.querySelectorAll('.found .hit')[0].click()")
    shown = "Array.from(document.querySelectorAll('.turn pre'), (e) => e.textContent)"
    wait_for(browser, f"{shown}.some((text) => text.includes('onerror'))")


def test_a_cell_of_the_map_leads_to_its_group(browser) -> None:
    browser.execute_script(
        """
        const canvas = document.querySelector('canvas.map');
        const box = canvas.getBoundingClientRect();
        const place = { clientX: box.left + 2, clientY: box.top + 2, bubbles: true };
        canvas.dispatchEvent(new PointerEvent('pointermove', place));
        canvas.dispatchEvent(new MouseEvent('click', place));
        """
    )
    wait_for(browser, "document.querySelector('#viewer select').value === '0'")
    assert texts(browser, "#heatmap .readout")[0].startswith("Iteration 0, group i0-g")


@pytest.mark.parametrize("width", [1280, 420])
def test_nothing_is_wider_than_the_window(browser, width: int) -> None:
    browser.set_window_size(width, 900)
    page = "document.documentElement"
    assert browser.execute_script(f"return {page}.scrollWidth <= {page}.clientWidth")
