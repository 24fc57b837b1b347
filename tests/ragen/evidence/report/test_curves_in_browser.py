"""Curves of the report in a real browser: their legend, what they mean, and the files that they can be saved as."""

import csv
import io
import json
import time
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from starpo.ragen.evidence.report.data import gather
from starpo.ragen.evidence.report.document import rounded
from starpo.ragen.store import Store

pytestmark = pytest.mark.ci
DIRE = ".signal:is(.collapse, .standstill)"
MARKS = ("path.point", "path.joined", "path.smooth", "path.band", ".whisker", ".signal.warning", DIRE)
"""Whatever stands for something in a panel."""
RUN_OF_TWELVE = """
    const raw = [...Array(12).keys()].map((n) => [n, 0.5]);
    const band = raw.map(([n]) => [n, 0.4, 0.6]);
    const line = { label: "x", metric: "rollout/success_rate", raw, smooth: raw, band };
    data.panels = [{ title: "Twelve", note: "", lines: [line], is_share: true, is_log: false }];
    const signals = ["warning", "standstill"];
    data.signals = signals.map((severity) => ({ name: "x", iteration: 3, ended: null, words: "", severity }));
    renew();
"""


@pytest.fixture
def saved(page, tmp_path: Path) -> Callable[[str], str]:
    """Click a button, and return the text of the file that it saves; the browser first makes an empty one."""
    page.driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})

    def save(button: str) -> str:
        page.click(button)
        deadline = time.monotonic() + 20
        while not (files := [f for f in tmp_path.iterdir() if f.suffix in (".svg", ".csv") and f.stat().st_size]):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        [file] = files
        text = file.read_bytes().decode()
        file.unlink()
        return f"{file.name}\n{text}"

    return save


def test_legend_names_all_that_is_drawn(page) -> None:
    def drawn(place: str) -> set[str]:
        return {mark for mark in MARKS if page.count(f"{place} {mark}")}

    assert drawn("#panels") == drawn("#legend") >= {"path.point", "path.joined", "path.band", ".whisker"}
    page.run(RUN_OF_TWELVE)
    assert page.texts("#legend span") == [
        "measured", "smoothed over five points", "95% interval", "upright: a warning was raised",
        "upright: a collapse or standstill was raised",
    ]  # fmt: skip
    assert drawn("#panels") == drawn("#legend") - {".whisker"}  # of one mark with the band


def test_two_points_are_not_joined(page) -> None:
    counts = page.run(
        """
        return [2, 3].map((size) => {
          const raw = [...Array(size).keys()].map((n) => [n, n]);
          const line = { label: "x", metric: "x", raw, smooth: [], band: [] };
          const chart = lineChart({ title: "x", note: "", lines: [line] }, 3);
          const points = chart.querySelector("path.point").getAttribute("d").split("M").length - 1;
          return [points, chart.querySelectorAll("path.joined").length];
        });
        """
    )
    assert counts == [[2, 0], [3, 1]]


def test_waiting_drawing_fills_its_own_panel(page) -> None:
    page.run(
        """
        inView.clear(); // as if all were out of view
        renew();
        data.panels = [{ ...data.panels[1], title: "First" }, ...data.panels];
        renew();
        window.dispatchEvent(new Event("beforeprint")); // draws all that waits, replaced or not
        """
    )
    assert page.texts("#panels h3") == page.run("return data.panels.map(({ title }) => title)")


def test_dashed_line_is_dashed_in_legend(page) -> None:
    dashed = page.run(
        """
        const named = [...Array(9).keys()].map(String);
        const lines = named.map((label) => ({ label, metric: "x", raw: [[0, 1]], smooth: [], band: [] }));
        const legend = lineChart({ title: "x", note: "", lines }, 1).querySelector(".legend");
        return [...legend.children].filter((line) => line.querySelector(".dashed")).map((line) => line.textContent);
        """
    )
    assert dashed == ["7", "8"]  # there are seven colours


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ([9.9996, 10.0004], ["9", "10", "11"]),  # a difference that nobody should see as a rise
        ([0.1288, 0.1302], ["0.129", "0.1295", "0.13"]),
        ([1.0, 3.0], ["0", "1", "2", "3"]),
    ],
)
def test_axis_labels_tell_marks_apart(page, values: list[float], labels: list[str]) -> None:
    drawn = page.run(
        """
        const lines = [{ raw: arguments[0].map((value, n) => [n, value]), band: [] }];
        const { marks, label } = axis({ lines });
        return marks.map(label);
        """,
        values,
    )
    assert drawn == labels


def test_pointer_and_question_mark_explain(page) -> None:
    title = page.run("return document.querySelector('#panels .panel:nth-child(2) h3').title")
    assert title.startswith("Trajectories that reach the goal, at the training temperature. Unit: share, 0 to 1. ")
    words, button = "#what-rollout-success-rate", "#panels [aria-controls='what-rollout-success-rate']"
    is_hidden = f"return document.querySelector({json.dumps(words)}).hidden"
    assert page.run(is_hidden)
    assert page.run("return document.querySelector('#panels svg').getAttribute('aria-describedby')").startswith("what-")
    page.click(button)
    assert not page.run(is_hidden)
    assert page.text(words).startswith(title)
    page.run("renew()")  # as a live page does
    assert not page.run(is_hidden)
    page.click(button)
    assert page.run(is_hidden)


def test_metric_leads_to_glossary(page, stored_run: Store) -> None:
    page.go("#iteration=1")
    names = page.texts("[data-part=Metrics] dt")
    assert page.texts("[data-part=Metrics] dt a[title]") == names
    assert not page.run("return document.querySelector('#glossary details').open")
    page.run("location.hash = document.querySelector(\"dt a[href='#meaning-rollout-entropy']\").hash")
    page.wait_for("document.querySelector('#glossary details').open")
    assert page.run("return document.activeElement.id") == "meaning-rollout-entropy"
    assert page.text("#meaning-rollout-entropy dd").endswith("nats per token")
    assert page.text(".iteration-title") == "Iteration 1"  # what is looked at stays
    listed = set(page.texts("#glossary dt"))
    assert {"reward/component/<component>_mean", "evaluation/<panel>/success"} <= listed


def test_saved_figure_needs_no_style_sheet(page, saved) -> None:
    name, _, text = saved("#panels [aria-label='Save Evaluation success as SVG']").partition("\n")
    assert name == "hostile-evaluation-success.svg"
    root = ElementTree.fromstring(text)
    elements = list(root.iter())
    assert {element.tag.partition("}")[2] for element in elements} == {
        "svg", "title", "desc", "rect", "g", "line", "path", "text"
    }  # fmt: skip
    assert not [element for element in elements if {"class", "style"} & element.attrib.keys()]
    texts = [element.text for element in elements if element.tag.endswith("}text")]
    assert texts[0] == "Evaluation success"
    assert {"100%", "iterations done", "measured", "joins measured points", "95% interval"} <= set(texts)
    points, of_legend = [element for element in elements if element.get("d", "").endswith("h0")]
    assert points.get("d").count("M") == 5  # checkpoints
    assert (points.get("stroke"), points.get("stroke-linecap")) == ("rgb(43, 98, 201)", "round")
    assert of_legend.get("d").count("M") == 1
    assert page.count(".on-paper") == 0


def test_dark_page_saves_light_figure(page, saved) -> None:
    emulate = page.driver.execute_cdp_cmd
    button = "#panels [aria-label='Save Entropy as SVG']"
    light = saved(button)
    emulate("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark"}]})
    try:
        assert page.run("return getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 29)"
        assert saved(button) == light
    finally:
        emulate("Emulation.setEmulatedMedia", {"features": []})


def test_saved_tables_hold_what_is_drawn(saved, stored_run: Store) -> None:
    series = gather(stored_run, "hostile").series
    name, _, text = saved("#panels [aria-label='Save Evaluation success as CSV']").partition("\n")
    assert name == "hostile-evaluation-success.csv"
    header, *rows = csv.reader(io.StringIO(text))
    assert header == ["iteration", "line", "metric", "value", "low", "high", "smoothed"]
    assert [(int(row[0]), float(row[3]), float(row[4]), float(row[5])) for row in rows] == [
        (n, *(rounded(series[f"evaluation/sokoban/success{end}"][n]) for end in ("", "_low", "_high")))
        for n in range(5)
    ]
    name, _, text = saved("#take-metrics").partition("\n")
    assert name == "hostile-metrics.csv"
    table = {int(row.pop("iteration")): row for row in csv.DictReader(io.StringIO(text))}
    values = {
        (metric, iteration): float(value) for iteration, row in table.items() for metric, value in row.items() if value
    }
    assert values == {(metric, n): rounded(value) for metric, points in series.items() for n, value in points.items()}


def test_saved_files_keep_text_as_text(page, hostile_texts) -> None:
    figure, table = page.run(
        """
        const raw = [[0, 1], [1, 2]];
        const lines = arguments[1].map((label) => ({ label, metric: label, raw, smooth: [], band: [] }));
        const panel = { title: arguments[0], note: arguments[0], lines };
        const picture = lineChart(panel, 1).querySelector("figure > svg");
        return [figureText(panel, picture, arguments[0], []), csv(panelRows(panel))];
        """,
        hostile_texts[1],
        [hostile_texts[0], '=HYPERLINK("http://127.0.0.1:9/")', "a,b\n"],
    )
    root = ElementTree.fromstring(figure)
    assert not [element for element in root.iter() if element.tag.rpartition("}")[2] in ("script", "img")]
    assert hostile_texts[0] in [element.text for element in root.iter()]
    labels = [row[1] for row in csv.reader(io.StringIO(table, newline=""))][1::2]
    assert labels == [hostile_texts[0], '\'=HYPERLINK("http://127.0.0.1:9/")', "a,b\n"]
