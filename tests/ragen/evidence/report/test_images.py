"""A visual run in the report: each picture once, bounded, in the place where the model saw it; and in a browser."""

import gzip
import json

import pyarrow as pa
import pytest

from starpo.ragen.agents.vision.image import Image
from starpo.ragen.agents.vision.image_tokens import MARK
from starpo.ragen.evidence.report.data import gather
from starpo.ragen.evidence.report.page import render_report
from starpo.ragen.evidence.report.words import embedded_words
from starpo.ragen.store import Store
from tests.ragen.evidence.conftest import facts


def turns_of(data):
    packed = json.loads(gzip.decompress(data.rollouts[0].packed))
    return packed["groups"][0]["members"][0]["turns"], packed["texts"]


def test_page_holds_each_prompt_image_once(visual_run):
    data = gather(visual_run, "seen")
    rows = visual_run.read_table("images", "d" * 32).to_pylist()
    stored = {row["digest"]: Image.from_png(row["png"]).to_png() for row in rows}  # compressed by themselves
    assert data.images == stored
    assert f"The model saw {len(stored)} different images in these: all are shown." in embedded_words(data)
    turns, texts = turns_of(data)
    shown = [row["image"] for row in visual_run.read_table("turn_images", "d" * 32).to_pylist()]
    assert turns[1]["images"] == shown[1:3]  # of turns 0 and 1
    messages = [(role, texts[place].count(MARK), images) for role, place, _, _, images in turns[1]["prompt"]["added"]]
    assert messages == [("user", 1, shown[1:2]), ("assistant", 1, []), ("user", 1, shown[2:3])]
    page = render_report(data)
    assert all(page.count(png) == 1 for png in stored.values())
    assert "img-src data:;" in page


def test_many_images_sampled_and_all_counted(visual_run):
    data = gather(visual_run, "seen", max_image_bytes=1500)
    assert 0 < len(data.images) < data.num_images
    assert sum(map(len, data.images.values())) <= 1500
    words = f"{len(data.images)} are shown, the others named by their digest"
    assert any(words in sentence for sentence in embedded_words(data))


def test_picture_of_other_pixels_is_omitted(visual_run, tmp_path):
    images = visual_run.read_table("images", "d" * 32)
    _, second, *rest = images["png"].to_pylist()
    forged = [second, second, *rest]
    other = Store(str(tmp_path / "other"))
    other.put_table("images", images.set_column(3, images.schema.field("png"), pa.array(forged)), facts("e" * 32))
    for kind in ("turns", "turn_images"):
        other.put_table(kind, visual_run.read_table(kind, "d" * 32), facts("e" * 32))
    other.runs.create("seen", flow="starpo", preset=None, config=visual_run.runs.get("seen").config)
    other.runs.record_stage("seen", 0, "rollout", dict.fromkeys(("turns", "turn_images", "images"), "e" * 32))
    data = gather(other, "seen")
    assert len(data.images) == data.num_images - 1
    (missing,) = data.missing
    assert "the pixels of image" in missing.reason


@pytest.mark.ci
def test_a_browser_draws_them(visual_run, browser, tmp_path):
    file = tmp_path / "report.html"
    file.write_text(render_report(gather(visual_run, "seen")), encoding="utf-8")
    browser.open(file)
    assert browser.text(".turn[data-turn='1'] .texts h4") == "Observation, as the model saw it"
    browser.run("for (const e of document.querySelectorAll('.turn .prompt')) e.open = true")
    browser.wait_for("document.querySelectorAll(\".turn[data-turn='1'] .message img\").length === 2")
    sizes = "return Array.from(document.querySelectorAll('.turn img'), (e) => [e.naturalWidth, e.naturalHeight])"
    assert set(map(tuple, browser.run(sizes))) == {(128, 128)}
    assert [entry for entry in browser.complaints() if not entry.startswith("data:image/png")] == []
