"""A visual run in the report: each picture once, bounded, in the place where the model saw it; and in a browser."""

import gzip
import json
from itertools import cycle

import pyarrow as pa
import pytest

from starpo.ragen.agents.policy.tokenizer import make_tokenizer
from starpo.ragen.agents.prompting.context import ContextBuilder
from starpo.ragen.agents.rollout.engine import Response
from starpo.ragen.agents.rollout.loop import Episode, play
from starpo.ragen.agents.rollout.turn_images import take_images
from starpo.ragen.agents.vision.image_tokens import MARK
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.rollout import SamplingConfig
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.seeding import dynamics_seed, sampling_seed
from starpo.ragen.envs.frozen_lake.environment import FrozenLakeSettings
from starpo.ragen.evidence.report.data import gather
from starpo.ragen.evidence.report.page import render_report
from starpo.ragen.evidence.report.words import embedded_words
from starpo.ragen.store import Facts, Store
from starpo.schemas.manifest import Stage

TOKENIZER = make_tokenizer(patch_size=32)
AGENT = AgentConfig(prompt="state", observation="image", context="window", window_turns=2, should_show_reward=False)
LAKE = FrozenLakeSettings(slip=0.0, min_distance=4)
STAGE = Stage(name="rollout", version=1)


class Walker:
    """Session whose responses hold a mark of their own, which stands for no image."""

    def __init__(self):
        self._moves = cycle(("Left", "Down", "Down", "Up"))

    def generate(self, requests):
        text = f"<think>{MARK}</think><answer>{next(self._moves)}</answer>"
        ids = [*TOKENIZER.encode(text), TOKENIZER.eos_token_id]
        return [Response(ids, [0.0] * len(ids), "stop") for _ in requests]

    def close(self):
        pass


@pytest.fixture
def visual(tmp_path):
    """Store with the run 'seen'; trajectory g0-0, whose prompts show two pictures from turn 1 on."""
    store = Store(str(tmp_path / "store"))
    config = StarPOConfig(environment=LAKE, agent=AGENT, iterations=1, policy={"type": "tiny", "patch_size": 32})
    store.runs.create("seen", flow="starpo", preset=None, config=config.model_dump(mode="json"))
    TOKENIZER.save_pretrained(tmp_path / "tokenizer")
    store.put_folder("checkpoint", str(tmp_path / "tokenizer"), facts("c" * 32))
    store.runs.record_stage("seen", 0, "warm_start", {"checkpoint": "c" * 32})
    episode = Episode("g0", 0, 1, dynamics_seed(1, 0), sampling_seed(1, 0))
    contexts = ContextBuilder(TOKENIZER, AGENT, 100)
    played = play(Walker(), contexts, TOKENIZER, LAKE, AGENT, SamplingConfig(max_response_tokens=100), 999, [episode])
    for kind, table in zip(("turns", "turn_images", "images"), take_images(played), strict=True):
        store.put_table(kind, table, facts("d" * 32))
    store.runs.record_stage("seen", 0, "rollout", dict.fromkeys(("turns", "turn_images", "images"), "d" * 32))
    return store


def facts(key: str) -> Facts:
    return Facts(key=key, stage=STAGE, settings={"agent": {"observation": "image"}}, inputs={}, seed=0)


def turns_of(data):
    packed = json.loads(gzip.decompress(data.rollouts[0].packed))
    return packed["groups"][0]["members"][0]["turns"], packed["texts"]


def test_prompts_name_their_images_and_the_page_holds_each_once(visual):
    data = gather(visual, "seen")
    stored = {row["digest"]: row["png"] for row in visual.read_table("images", "d" * 32).to_pylist()}
    assert data.images == stored
    assert f"The model saw {len(stored)} different images in these: all are shown." in embedded_words(data)
    turns, texts = turns_of(data)
    shown = [row["image"] for row in visual.read_table("turn_images", "d" * 32).to_pylist()]
    assert turns[1]["images"] == shown[1:3]  # of turns 0 and 1
    messages = [(role, texts[place].count(MARK), images) for role, place, _, _, images in turns[1]["prompt"]["added"]]
    assert messages == [("user", 1, shown[1:2]), ("assistant", 1, []), ("user", 1, shown[2:3])]
    page = render_report(data)
    assert all(page.count(png) == 1 for png in stored.values())
    assert "img-src data:;" in page


def test_of_many_images_some_are_shown_and_all_counted(visual):
    data = gather(visual, "seen", max_image_bytes=1500)
    assert 0 < len(data.images) < data.num_images
    assert sum(map(len, data.images.values())) <= 1500
    words = f"{len(data.images)} are shown, the others named by their digest"
    assert any(words in sentence for sentence in embedded_words(data))


def test_a_picture_of_other_pixels_is_left_out_and_said(visual, tmp_path):
    images = visual.read_table("images", "d" * 32)
    _, second, *rest = images["png"].to_pylist()
    forged = [second, second, *rest]
    other = Store(str(tmp_path / "other"))
    other.put_table("images", images.set_column(3, images.schema.field("png"), pa.array(forged)), facts("e" * 32))
    for kind in ("turns", "turn_images"):
        other.put_table(kind, visual.read_table(kind, "d" * 32), facts("e" * 32))
    other.runs.create("seen", flow="starpo", preset=None, config=visual.runs.get("seen").config)
    other.runs.record_stage("seen", 0, "rollout", dict.fromkeys(("turns", "turn_images", "images"), "e" * 32))
    data = gather(other, "seen")
    assert len(data.images) == data.num_images - 1
    (missing,) = data.missing
    assert "the pixels of image" in missing.reason


@pytest.mark.integration
def test_a_browser_draws_them(visual, browser, tmp_path):
    file = tmp_path / "report.html"
    file.write_text(render_report(gather(visual, "seen")), encoding="utf-8")
    browser.open(file)
    assert browser.text(".turn[data-turn='1'] .texts h4") == "Observation, as the model saw it"
    browser.run("for (const e of document.querySelectorAll('.turn .prompt')) e.open = true")
    browser.wait_for("document.querySelectorAll(\".turn[data-turn='1'] .message img\").length === 2")
    sizes = "return Array.from(document.querySelectorAll('.turn img'), (e) => [e.naturalWidth, e.naturalHeight])"
    assert set(map(tuple, browser.run(sizes))) == {(128, 128)}
    assert [entry for entry in browser.complaints() if not entry.startswith("data:image/png")] == []
