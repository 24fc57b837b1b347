import base64
import dataclasses
import gzip
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest

from starpo.ragen.agents.evaluation.comparison import PanelDifference
from starpo.ragen.evidence.report.data import ReportData, gather
from starpo.ragen.evidence.report.document import coded
from starpo.ragen.evidence.report.page import render_report
from starpo.ragen.learning.control.collapse import RunVerdict, Signal
from starpo.ragen.store import Store


@pytest.fixture(scope="module")
def data(stored_run: Store) -> ReportData:
    return gather(stored_run, "hostile")


@pytest.fixture(scope="module")
def page(data: ReportData) -> str:
    return render_report(data)


class Elements(HTMLParser):
    """Parser that collects all elements of a page with their attributes, and the text of its scripts."""

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


@pytest.mark.ci
def test_the_page_is_whole_by_itself(page: str) -> None:
    for tag, attributes in Elements(page).elements:
        assert not {"src", "data", "srcset", "poster"} & attributes.keys(), (tag, attributes)
        assert tag not in ("link", "iframe", "object", "embed", "base")
        assert str(attributes.get("href", "#")).startswith("#")
    assert "@import" not in page
    assert "url(" not in page


def test_hostile_text_adds_no_markup(page: str, hostile_texts: tuple[str, ...]) -> None:
    elements = Elements(page)
    # the page's data, four rollouts and three evaluations, the page's own script
    kinds = [attributes.get("type") for tag, attributes in elements.elements if tag == "script"]
    assert kinds == ["application/json", *["application/octet-stream"] * 7, None]
    assert not {"img", "svg"} & {tag for tag, _ in elements.elements}
    assert not any(name.startswith("on") for _, attributes in elements.elements for name in attributes)
    for text in hostile_texts:
        if "<" in text:
            assert text not in page


def test_only_own_script_may_run(page: str) -> None:
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1].replace("&#39;", "'")
    script = Elements(page).scripts[-1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")
    assert not re.search(r"http|connect-src|img-src|\*|unsafe-eval", policy)


def test_embedded_data_round_trip(page: str, stored_run: Store) -> None:
    scripts = Elements(page).scripts
    packed = json.loads(gzip.decompress(base64.b64decode(scripts[1])))
    responses = {turn["response"] for group in packed["groups"] for m in group["members"] for turn in m["turns"]}
    assert any("onerror" in response for response in responses)
    data = json.loads(scripts[0])
    assert [panel["title"] for panel in data["panels"]][:2] == ["Evaluation success", "Training success"]
    assert len(data["decisions"]) == 12
    assert data["reasons"][data["decisions"][0][7]]


def test_words_mark_code_escape_rest() -> None:
    assert coded("ask `ragen <b>` & go, ` not this") == "ask <code>ragen &lt;b&gt;</code> &amp; go, ` not this"


def test_new_run_has_a_page(tmp_path) -> None:
    store = Store(str(tmp_path))
    store.runs.create("new", flow="starpo", preset=None, config={"environment": {"type": "bandit"}})
    assert "No evaluation has been stored yet." in render_report(gather(store, "new"))


@pytest.mark.ci
def test_embedded_parts_stated_with_counts(page: str, stored_run: Store) -> None:
    assert "All 24 training trajectories of the run are in this page." in page
    assert "All 9 episodes of its 3 evaluations are included." in page
    small = render_report(gather(stored_run, "hostile", max_rollout_bytes=1, max_evaluation_bytes=1))
    assert "This page holds 2 of the run&#39;s 24 training trajectories, from 1 of 4 rollouts:" in small
    assert "Of iteration 3 it holds 2 of 6." in small
    assert "Of 9 evaluation episodes it holds 3, from 1 of 3 evaluations." in small
    assert "<code>starpo report hostile --embed N</code>" in small
    assert "`" not in small.partition("<main")[2].partition("<script")[0]


def test_artifacts_listed_with_key_and_origin(page: str, data: ReportData) -> None:
    shown = json.loads(Elements(page).scripts[0])
    assert [(r[0], r[1], r[2], r[3]) for r in shown["artifacts"]] == [
        (p.iteration, p.stage, p.kind, p.key) for p in data.manifests
    ]
    for row, (place, manifest) in zip(shown["artifacts"], data.manifests.items(), strict=True):
        assert row[4] == manifest.num_rows
        assert row[10] == manifest.inputs
        assert shown["origins"][row[11]]["versions"].startswith("python "), place


def test_same_data_same_page(page: str, data: ReportData) -> None:
    assert render_report(data) == page


def signal(iteration: int, ended: int | None) -> Signal:
    return Signal(iteration, ended, "rollout/entropy", "warning", 0.1, 0.2, "words")


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        (RunVerdict("healthy", ()), "healthy: no signal of a collapse holds."),
        (RunVerdict("healthy", (signal(2, 4),)), "healthy: no signal of a collapse holds; 1 did in the past."),
        (RunVerdict("warning", (signal(2, 4), signal(7, None))), "warning: a signal holds, since iteration 7."),
        (RunVerdict("warning", (signal(9, None), signal(7, None))), "warning: 2 signals hold, since iteration 7."),
    ],
)
def test_the_verdict_is_one_line(data: ReportData, verdict: RunVerdict, words: str) -> None:
    assert f">{words}</p>" in render_report(dataclasses.replace(data, verdict=verdict))


def test_headline_states_paired_result(data: ReportData) -> None:
    assert data.change is not None
    assert (data.change.mean, data.change.num_pairs) == (0.0, 3)  # the stored episodes of both ends are the same
    page = render_report(dataclasses.replace(data, change=PanelDifference(0.4, 0.3, 0.5, 0.001, 20)))
    assert (
        "Success rose from 20.0% (95% interval 15.0% to 25.0%) to 60.0% (95% interval 55.0% to 65.0%) in 4 updates, "
        "by +40.0 points (95% interval +30.0 to +50.0, paired over 20 initial states)."
    ) in page
