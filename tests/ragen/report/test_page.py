import base64
import dataclasses
import gzip
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest

from ragen.diagnostics.collapse import Signal, Verdict
from ragen.report.data import gather
from ragen.report.page import render_report
from ragen.store import Store


@pytest.fixture(scope="module")
def page(stored_run: Store) -> str:
    return render_report(gather(stored_run, "hostile"))


class Elements(HTMLParser):
    """Every element of a page with its attributes, and the text of its scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._is_script = False
        self.feed(page)

    def handle_starttag(self, tag, attributes) -> None:
        self.elements.append((tag, dict(attributes)))
        self._is_script = tag == "script"
        if self._is_script:
            self.scripts.append("")

    def handle_endtag(self, tag) -> None:
        self._is_script = self._is_script and tag != "script"

    def handle_data(self, data) -> None:
        if self._is_script:
            self.scripts[-1] += data


def test_the_page_is_whole_by_itself(page: str) -> None:
    for tag, attributes in Elements(page).elements:
        assert not {"src", "data", "srcset", "poster"} & attributes.keys(), (tag, attributes)
        assert tag not in ("link", "iframe", "object", "embed", "base")
        assert str(attributes.get("href", "#")).startswith("#")
    assert "@import" not in page
    assert "url(" not in page


def test_hostile_text_adds_no_element_and_no_script(page: str, hostile_texts: tuple[str, ...]) -> None:
    elements = Elements(page)
    # the page's data, four packed iterations, the page's own script
    assert len(elements.scripts) == 6
    kinds = [attributes.get("type") for tag, attributes in elements.elements if tag == "script"]
    assert kinds == ["application/json", *["application/octet-stream"] * 4, None]
    assert not {"img", "svg"} & {tag for tag, _ in elements.elements}
    assert not any(name.startswith("on") for _, attributes in elements.elements for name in attributes)
    for text in hostile_texts:
        if "<" in text:
            assert text not in page


def test_only_the_pages_own_script_may_run(page: str) -> None:
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1].replace("&#39;", "'")
    script = Elements(page).scripts[-1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")


def test_embedded_data_are_read_back_as_they_were(page: str, stored_run: Store) -> None:
    scripts = Elements(page).scripts
    packed = json.loads(gzip.decompress(base64.b64decode(scripts[1])))
    responses = {turn["response"] for group in packed for m in group["members"] for turn in m["turns"]}
    assert any("onerror" in response for response in responses)
    data = json.loads(scripts[0])
    assert [panel["title"] for panel in data["panels"]][:2] == ["Evaluation success", "Training success"]
    assert len(data["decisions"]) == 12
    assert data["reasons"][data["decisions"][0][7]]


def test_the_headline_says_what_was_achieved_with_intervals(page: str) -> None:
    assert (
        "Success rose from 20.0% (95% interval 15.0% to 25.0%) to 50.0% (95% interval 45.0% to 55.0%) in 3 updates."
        in page
    )


def test_a_failed_run_says_why(page: str) -> None:
    assert "Failed: &lt;img src=x" in page


def test_settings_are_listed_by_their_dotted_path(page: str) -> None:
    assert "<code>rollout.max_response_tokens</code>" in page
    assert "<code>environment.min_solution</code>" in page


def test_a_run_that_has_only_begun_still_has_a_page(tmp_path) -> None:
    store = Store(str(tmp_path))
    store.runs.create("new", flow="starpo", preset=None, config={"environment": {"type": "bandit"}})
    assert "No evaluation has been stored yet." in render_report(gather(store, "new"))


def signal(iteration: int, ended: int | None) -> Signal:
    return Signal(iteration, ended, "rollout/entropy", "warning", 0.1, 0.2, "words")


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        (Verdict("healthy", ()), "healthy: no signal of a collapse holds."),
        (Verdict("healthy", (signal(2, 4),)), "healthy: no signal of a collapse holds; 1 did in the past."),
        (Verdict("warning", (signal(2, 4), signal(7, None))), "warning: a signal holds, since iteration 7."),
        (Verdict("warning", (signal(9, None), signal(7, None))), "warning: 2 signals hold, since iteration 7."),
    ],
)
def test_the_verdict_is_one_line(stored_run: Store, verdict: Verdict, words: str) -> None:
    data = dataclasses.replace(gather(stored_run, "hostile"), verdict=verdict)
    assert f">{words}</p>" in render_report(data)
