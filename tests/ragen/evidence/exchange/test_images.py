"""Exchange of prompts with images: texts and images in their order, as the model saw them, and read back."""

import base64
import io
import json

import numpy as np
import PIL.Image
import pytest
from typer.testing import CliRunner

from starpo.flows.cli import app
from starpo.ragen.agents.policy.tokenizer import make_tokenizer
from starpo.ragen.agents.prompting.context import ContextBuilder
from starpo.ragen.agents.prompting.transcript import Transcriber
from starpo.ragen.agents.vision.image import Image
from starpo.ragen.agents.vision.image_tokens import MARK
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.envs import make
from starpo.ragen.envs.frozen_lake.environment import FrozenLakeSettings
from starpo.ragen.evidence.exchange import image_parts
from starpo.ragen.evidence.exchange.choosing import parse_choice
from starpo.ragen.evidence.exchange.exporting import export_run
from starpo.ragen.evidence.exchange.intake import take_in
from starpo.ragen.evidence.exchange.messages import message_lines
from starpo.ragen.evidence.exchange.played import Played, Recorded, _messages
from starpo.ragen.evidence.exchange.setting_aside import SetAside
from starpo.ragen.evidence.exchange.spool import Spool
from starpo.ragen.learning.reward.compute import compute_rewards
from tests.ragen.evidence.conftest import facts
from tests.ragen.evidence.exchange.conftest import SMOKE

KEEP_ALL = ("--set", "filter.strategy=none", "--set", "filter.should_drop_zero_variance=false")
IMAGES = [Image(np.full((64, 32, 3), shade, np.uint8)) for shade in (0, 1)]


@pytest.fixture(params=[{"context": "full"}, {"context": "window", "window_turns": 2}], ids=str)
def played(request):
    """Two turns, each with an image and the text 'a'; the first response holds a mark of its own."""
    tokenizer = make_tokenizer(patch_size=32)
    agent = AgentConfig(prompt="state", observation="both", **request.param)
    context = ContextBuilder(tokenizer, agent, 8).start(make(FrozenLakeSettings()))
    rows, places = [], []
    for turn, image in enumerate(IMAGES):
        added = context.observe("a", actions_left=1, reward=0.0, had_invalid_action=False, image=image)
        response = f"b{MARK}"
        response_ids = [*tokenizer.encode(response), tokenizer.eos_token_id]
        context.respond(response_ids)
        rows.append(
            {
                "trajectory_id": "g0-0", "group_id": "g0", "member": 0, "env": "frozen_lake", "env_seed": 0,
                "turn": turn, "initial_state_digest": "0" * 16, "truncated": False, "status": "ok",
                "finish_reason": "stop", "success": False, "info": "{}", "is_context_start": added.is_context_start,
                "prompt_ids": added.prompt_ids, "response_ids": response_ids, "response": response,
            }
        )  # fmt: skip
        places.append(added.images)
    messages, opening = _messages(rows, Transcriber(tokenizer, agent.model_dump()), places)
    return Played(0, rows, None, None, messages, opening, places)


def test_messages_hold_text_images_in_order(played):
    shown = [
        {
            "type": "image_url",
            "image_url": {"url": f"data:image/png;base64,{image.to_png()}"},
        }
        for image in IMAGES
    ]
    text = {"type": "text", "text": "\na"}
    line = list(message_lines(played))[-1]
    contents = [message["content"] for message in line["messages"]]
    assert contents == [[shown[0], text], f"b{MARK}", [shown[1], text], f"b{MARK}"]


def test_atif_names_its_image_files(visual_run, tmp_path):
    """A stored run, exported: the images are files, and the tokens are those that were stored."""
    folder = tmp_path / "exported"
    export_run(Recorded(visual_run, "seen"), "atif", folder, parse_choice([]))
    (file,) = folder.glob("iteration-00000/*.json")
    document = json.loads(file.read_text())
    shown = [row["image"] for row in visual_run.read_table("turn_images", "d" * 32).to_pylist()]
    contents = [step["message"] for step in document["steps"] if step["source"] == "user"]
    paths = [part["source"]["path"] for parts in contents for part in parts if part["type"] == "image"]
    assert paths == [f"images/{digest}.png" for digest in (shown[0], *shown[2::2])]  # a window of two turns
    for path in paths:
        image = Image.from_png(base64.b64encode((file.parent / path).read_bytes()).decode())
        assert path == f"images/{image.digest}.png"
    first = visual_run.read_table("turns", "d" * 32).to_pylist()[0]
    steps = [step for step in document["steps"] if step["source"] == "agent"]
    assert steps[0]["metrics"]["prompt_token_ids"] == first["prompt_ids"]


def imported(store, path, form, run="again"):
    """Import as a run; return the tables of its turns, turn_images and images."""
    done = CliRunner().invoke(app, ["import", run, str(path), "--format", form, *KEEP_ALL, "--store", store.url])
    assert done.exit_code == 0, done.output
    keys = store.runs.iteration(run, 0)["rollout"]
    return [store.read_table(kind, keys[kind]) for kind in ("turns", "turn_images", "images")]


def exported(store, run, form, folder):
    export_run(Recorded(store, run), form, folder, parse_choice([]))
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_atif_image_round_trip_is_exact(visual_run, tmp_path):
    exported(visual_run, "seen", "atif", tmp_path / "out")
    tables = imported(visual_run, tmp_path / "out", "atif")
    for table, kind in zip(tables, ("turns", "turn_images", "images"), strict=True):
        assert table.equals(visual_run.read_table(kind, "d" * 32))
    exported(visual_run, "again", "atif", tmp_path / "twice")
    assert imported(visual_run, tmp_path / "twice", "atif", "third") == tables


@pytest.mark.ci
@pytest.mark.parametrize("visual_run", [AgentConfig(prompt="state", observation="both")], indirect=True, ids=["full"])
def test_message_image_round_trip_keeps_images(visual_run, tmp_path):
    """Texts, images in their places and rewards; tokens are absent."""
    turns = visual_run.read_table("turns", "d" * 32)
    put_rewards(visual_run, turns)
    before = exported(visual_run, "seen", "messages", tmp_path / "out")
    turns_again, places, images = imported(visual_run, tmp_path / "out" / "iteration-00000.jsonl", "messages")
    assert turns_again["response"].equals(turns["response"])
    shown, originals = places, visual_run.read_table("turn_images", "d" * 32)
    assert shown.select(["turn", "image"]).equals(originals.select(["turn", "image"]))
    assert set(shown["num_tokens"].to_pylist()) == {0}
    assert images.equals(visual_run.read_table("images", "d" * 32))
    paid = [visual_run.runs.iteration(run, 0)["reward"]["rewards"] for run in ("seen", "again")]
    returns = [visual_run.read_table("rewards", key)["trajectory_return"].to_pylist() for key in paid]
    assert returns[0] == returns[1]
    after = exported(visual_run, "again", "messages", tmp_path / "twice")
    contents = [json.loads(files["iteration-00000.jsonl"])["messages"] for files in (before, after)]
    assert contents[0] == contents[1]


def put_rewards(store, turns):
    rewards = compute_rewards(turns, SMOKE.reward)
    store.put_table("rewards", rewards, facts("e" * 32))
    store.runs.record_stage("seen", 0, "reward", {"rewards": "e" * 32})


def png(width, height, mode="RGB", form="PNG"):
    file = io.BytesIO()
    PIL.Image.new(mode, (width, height)).save(file, form)
    return file.getvalue()


SOUND = png(2, 2)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (SOUND[:40], "cannot be read: "),
        (png(4097, 4096), "expected 1 to 16,777,216"),
        (png(2, 2, form="JPEG"), "does not begin as a PNG file does"),
        (png(2, 2, mode="RGBA"), "expected RGB or a palette"),
        (png(3, 3), "images of more than 8 pixels together"),
    ],
    ids=["truncated", "bomb", "type", "mode", "many"],
)
def test_undecodable_image_sets_line_aside(tmp_path, monkeypatch, data, reason):
    monkeypatch.setattr(image_parts, "MAX_PIXELS", 8)
    lines = [line_with(SOUND, SOUND), line_with(SOUND, data), line_with(SOUND)]
    (tmp_path / "given.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    aside = SetAside(tmp_path)
    with Spool(tmp_path / "turns.arrow") as spool:
        taken = take_in(tmp_path / "given.jsonl", "messages", spool, aside)
        assert [batch.num_rows for batch in spool.images()] == [1]  # that of both other lines
        assert sum(batch.num_rows for batch in spool.turn_images()) == 3
    (line,) = aside.lines()
    assert (taken.num_traces, aside.num_traces) == (2, 1)
    assert reason in line


def line_with(*files):
    parts = [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{base64.b64encode(file).decode()}"}}
        for file in files
    ]
    return {"messages": [{"role": "user", "content": parts}, {"role": "assistant", "content": "a"}]}


def change_path(document, folder):
    shown = [part for step in document["steps"] if step["source"] == "user" for part in step["message"]]
    part = next(part for part in shown if part["type"] == "image")
    part["source"]["path"] = f"../{folder.name}/{part['source']['path']}"


def link_elsewhere(document, folder):
    for file in folder.glob("images/*"):
        file.rename(folder.parent / file.name)
        file.symlink_to(folder.parent / file.name)


def exchange_pixels(document, folder):
    first, second, *_ = sorted(folder.glob("images/*"))
    first.write_bytes(second.read_bytes())


def move_image(document, folder):
    document["steps"][1]["extra"]["ragen"]["images"][0][0] += 1


def beyond_the_prompt(document, folder):
    document["steps"][1]["extra"]["ragen"]["images"][0][0] = 10_000


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (change_path, "expected images/DIGEST.png beside the document"),
        (link_elsewhere, "there is no such file beside the document"),
        (exchange_pixels, "is another image, of digest"),
        (move_image, "was changed since it was exported"),
        (beyond_the_prompt, "lies beyond the end of its prompt"),
    ],
)
def test_document_with_other_images_set_aside(visual_run, tmp_path, change, reason):
    exported(visual_run, "seen", "atif", tmp_path / "out")
    (file,) = (tmp_path / "out").rglob("*.json")
    document = json.loads(file.read_text())
    change(document, file.parent)
    file.write_text(json.dumps(document))
    aside = SetAside(tmp_path)
    with Spool(tmp_path / "turns.arrow") as spool:
        assert take_in(file.parent, "atif", spool, aside).num_traces == 0
    (line,) = aside.lines()
    assert reason in line


def test_foreign_documents_keep_images_without_tokens(visual_run, tmp_path):
    """Nothing says which tokens stand for an image."""
    exported(visual_run, "seen", "atif", tmp_path / "out")
    (file,) = (tmp_path / "out").rglob("*.json")
    document = json.loads(file.read_text())
    for part in (document, *document["steps"]):
        part.pop("extra", None)
    file.write_text(json.dumps(document))
    turns, places, images = imported(visual_run, tmp_path / "out", "atif")
    assert not any(turns["prompt_ids"].to_pylist() + turns["response_ids"].to_pylist())
    assert set(places["image"].to_pylist()) == set(images["digest"].to_pylist())
    assert images.num_rows > 1
