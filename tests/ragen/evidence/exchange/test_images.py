"""Chat messages of prompts with images: texts and images in their order, as the model saw them."""

import base64
import json

import numpy as np
import pytest

from starpo.ragen.agents.policy.tokenizer import make_tokenizer
from starpo.ragen.agents.prompting.context import ContextBuilder
from starpo.ragen.agents.prompting.transcript import Transcriber
from starpo.ragen.agents.vision.image import Image
from starpo.ragen.agents.vision.image_table import ImageTable
from starpo.ragen.agents.vision.image_tokens import MARK
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.envs import make
from starpo.ragen.envs.frozen_lake.environment import FrozenLakeSettings
from starpo.ragen.evidence.exchange.atif import read_atif
from starpo.ragen.evidence.exchange.choosing import parse_choice
from starpo.ragen.evidence.exchange.exporting import export_run
from starpo.ragen.evidence.exchange.messages import message_lines
from starpo.ragen.evidence.exchange.played import Played, Recorded, _told
from starpo.ragen.evidence.exchange.trace import TraceFault

IMAGES = [Image(np.full((64, 32, 3), shade, np.uint8)) for shade in (0, 1)]


@pytest.fixture(params=[{"context": "full"}, {"context": "window", "window_turns": 2}], ids=str)
def played(request):
    """Two turns, each with an image and the text 'a'; the first response holds a mark of its own."""
    tokenizer = make_tokenizer(patch_size=32)
    agent = AgentConfig(prompt="state", observation="both", **request.param)
    context = ContextBuilder(tokenizer, agent, 8).start(make(FrozenLakeSettings()))
    table, rows = ImageTable(), []
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
                "prompt_ids": table.put(added.prompt_ids, added.images), "response_ids": response_ids,
                "response": response,
            }
        )  # fmt: skip
    told, opening = _told(rows, Transcriber(tokenizer, agent.model_dump()), table)
    return Played(0, rows, None, None, told, opening)


def test_messages_hold_texts_and_images_in_order(played):
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


def test_atif_names_the_files_of_its_images(visual_run, tmp_path):
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
    with pytest.raises(TraceFault, match="a part of type 'image'; texts alone can be imported"):
        read_atif(document)
