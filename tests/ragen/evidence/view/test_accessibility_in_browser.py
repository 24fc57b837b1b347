"""What axe-core, the usual checker of accessibility, says of each page, in both colour schemes and narrow windows."""

from collections.abc import Iterator
from importlib.resources import files

import pytest

from tests.ragen.evidence.view.conftest import Browser

pytestmark = pytest.mark.ci
PAGES = {
    "runs": "/",
    "side by side": "/run/hostile#iteration=1&group=i1-g1&trajectory=i1-g1-0&beside=i1-g1-1",
    "compare": "/compare?run=hostile&run=hostile",
}
AXE = """
    const done = arguments[arguments.length - 1];
    axe.run(document, {resultTypes: ['violations']}).then((result) => done(result.violations.map(
        (rule) => [rule.impact, rule.id, rule.help, rule.nodes.map((node) => [node.html, node.failureSummary])])));
"""


@pytest.fixture(params=["light", "dark", "narrow"])
def window(request: pytest.FixtureRequest, browser: Browser) -> Iterator[str]:
    scheme = "dark" if request.param == "dark" else "light"
    emulated = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", emulated)
    width = 400 if request.param == "narrow" else 1280
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    yield request.param
    browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@pytest.mark.parametrize("page", PAGES)
def test_axe_finds_nothing_serious(browser: Browser, served: str, window: str, page: str) -> None:
    pytest.importorskip("selenium_axe_python", reason="axe-core is not installed (pip install selenium-axe-python)")
    browser.driver.get("about:blank")
    browser.driver.get(served + PAGES[page])
    browser.wait_for("document.readyState === 'complete'")
    if page == "side by side":
        browser.wait_for("document.documentElement.dataset.ready")
    browser.run(files("selenium_axe_python").joinpath("axe-core/axe.min.js").read_text(encoding="utf-8"))
    violations = browser.driver.execute_async_script(AXE)
    assert [entry for entry in violations if entry[0] in ("serious", "critical")] == []
