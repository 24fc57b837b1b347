"""Policies that see, played by a real vLLM on the CPU: its log-probs are those of the learner on the same pixels."""

import numpy as np
import pytest
import torch

from starpo.ragen.agents.policy.load import load_policy
from starpo.ragen.agents.rollout.costs import take_usage
from starpo.ragen.agents.rollout.engine import Request, Response
from starpo.ragen.agents.rollout.engine_spec import EngineSpec
from starpo.ragen.agents.rollout.job import RolloutJob
from starpo.ragen.agents.rollout.pools.worker_pool import WorkerPool
from starpo.ragen.agents.rollout.shards import make_episodes, play_shards
from starpo.ragen.agents.rollout.turn_images import take_images
from starpo.ragen.agents.vision.embeddings import model_inputs
from starpo.ragen.agents.vision.image import Image, PlacedImage
from starpo.ragen.agents.vision.image_table import ImageTable
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.rollout import RolloutConfig
from starpo.ragen.envs.frozen_lake.environment import FrozenLakeSettings
from starpo.schemas.validate import validate
from tests.visual_policies import FAMILIES, save_random

pytestmark = pytest.mark.vllm

SHARDS = make_episodes([("g0", 1000), ("g1", 1001)], group_size=4, shard_groups=2)
AGENT = AgentConfig(prompt="state", observation="image", max_turns=3)
ROLLOUT = RolloutConfig(engine="vllm", max_context_tokens=512, max_response_tokens=24)
LAKE = FrozenLakeSettings(size=3)


def requests_of(turns, turn_images, images):
    """Yield request and response of each turn, with the whole context and its images."""
    pixels = {row["digest"]: Image.from_png(row["png"]) for row in images.to_pylist()}
    placed = {}
    for row in turn_images.to_pylist():
        placed.setdefault((row["trajectory_id"], row["turn"]), []).append(row)
    context, shown = [], ()
    for row in turns.to_pylist():
        context, shown = ([], ()) if row["is_context_start"] else (context, shown)
        for one in placed.get((row["trajectory_id"], row["turn"]), ()):
            place = PlacedImage(len(context) + one["position"], one["num_tokens"], pixels[one["image"]])
            shown = (*shown, place)
        context = [*context, *row["prompt_ids"]]
        response = Response(row["response_ids"], row["behaviour_logprobs"], row["finish_reason"])
        yield Request(row["trajectory_id"], context, np.zeros(0), 0, images=shown), response
        context = [*context, *row["response_ids"]]


def gaps(turns, turn_images, images, folder):
    """Largest difference of the stored log-probs from those of the learner, in nats, of each turn."""
    model, _ = load_policy(folder)
    return [
        np.abs(logprobs(model, request, response.token_ids) - response.logprobs).max()
        for request, response in requests_of(turns, turn_images, images)
    ]


@torch.inference_mode()
def logprobs(model, request, token_ids):
    """Log-probs of a response. A placeholder that was sampled is text; transformers would take it for an image."""
    table = ImageTable()
    ids = [*table.put(request.prompt_ids, request.images), *token_ids]
    inputs = model_inputs(model.base_model, torch.tensor([ids]), table.images)
    logits = model(**inputs).logits[0, len(request.prompt_ids) - 1 : -1]
    return torch.log_softmax(logits.double(), -1)[range(len(token_ids)), token_ids].numpy()


@pytest.mark.thorough
@pytest.mark.parametrize("family", FAMILIES)
def test_vision_policy_played_and_updated(vllm_interpreter, tmp_path, family):
    """The encoder of the second checkpoint is another."""
    folders = [str(tmp_path / str(seed)) for seed in range(2)]
    for seed, folder in enumerate(folders):
        save_random(family, folder, seed)
    pool = WorkerPool(EngineSpec.of(ROLLOUT), 1, vllm_interpreter)
    for folder, other in (folders, folders[::-1]):
        job = RolloutJob(folder, folder, LAKE, AGENT, ROLLOUT.sampling, ROLLOUT.max_context_tokens)
        played, usage = take_usage(play_shards(pool, job, SHARDS))
        tables = take_images(played)
        for kind, table in zip(("turns", "turn_images", "images"), tables, strict=True):
            validate(table, kind)
        assert max(gaps(*tables, folder)) < 1e-4
        assert min(gaps(*tables, other)) > 0.01
        assert usage["cached_prompt_tokens"] > 0
