"""Chat messages of prompts with images: texts and images in their order, as the model saw them."""

import numpy as np
import pytest

from starpo.ragen.agents.policy.tokenizer import make_tokenizer
from starpo.ragen.agents.prompting.context import ContextBuilder
from starpo.ragen.agents.prompting.transcript import Transcriber
from starpo.ragen.agents.vision.image import Image
from starpo.ragen.agents.vision.image_table import ImageTable
from starpo.ragen.agents.vision.image_tokens import MARK
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.core.errors import ConfigError
from starpo.ragen.envs import make
from starpo.ragen.envs.frozen_lake.environment import FrozenLakeSettings
from starpo.ragen.evidence.exchange.atif import atif_document
from starpo.ragen.evidence.exchange.messages import message_lines
from starpo.ragen.evidence.exchange.played import Played, _told

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


def test_atif_says_that_it_holds_none(played):
    with pytest.raises(ConfigError, match="shows images in its prompts"):
        atif_document(played, "run", "tiny")
