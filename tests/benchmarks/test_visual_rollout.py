"""Generated tokens per second on images: whole FrozenLake episodes, torch engine against transformers' `generate`.

As in `test_rollout.py`, both play the same lakes through the same loop with the same warm-started policy, in turn. The
baseline puts the full prompts of all live trajectories into one left-padded batch at every turn, and computes each
different image of the batch once.
"""

import pytest
import torch

from starpo.flows.presets import preset
from starpo.ragen.agents.policy.load import load_policy
from starpo.ragen.agents.prompting.context import ContextBuilder
from starpo.ragen.agents.rollout.job import RolloutJob
from starpo.ragen.agents.rollout.loop import play
from starpo.ragen.agents.rollout.pools.worker_pool import WorkerPool
from starpo.ragen.agents.rollout.shards import make_episodes, play_shards
from starpo.ragen.core.seeding import derive_seed
from starpo.ragen.learning.imitation import imitate
from tests.benchmarks.generate_session import CORES, GenerateSession, against_generate

NUM_GROUPS, GROUP_SIZE, REPEATS = 24, 16, 5  # as the preset plays them, and the text in `test_rollout.py`
GROUPS = [(f"g{group}", derive_seed("benchmark", group)) for group in range(NUM_GROUPS)]
WARM_START = {"policy.demonstration_turns": 2000, "policy.warm_start_steps": 150}


class SeeingGenerateSession(GenerateSession):
    """Generation from the embeddings of text and patches."""

    def generate(self, requests):
        width = max(len(request.prompt_ids) for request in requests)
        padding = [width - len(request.prompt_ids) for request in requests]
        pad = self.model.config.pad_token_id
        with torch.inference_mode():
            ids = torch.tensor(
                [[pad] * num + list(request.prompt_ids) for num, request in zip(padding, requests, strict=True)]
            )
            embedded = self.model.get_input_embeddings()(ids)
            places = [
                (row, padding[row] + place.position, place)
                for row, request in enumerate(requests)
                for place in request.images
            ]
            images = list({place.image.digest: place.image for _, _, place in places}.values())
            num_tokens = places[0][2].num_tokens
            features = dict(zip(images, self.model.model.vision(images).split(num_tokens), strict=True))
            for row, start, place in places:
                embedded[row, start : start + num_tokens] = features[place.image]
            mask = (torch.arange(width) >= torch.tensor(padding)[:, None]).long()
            output = self.model.generate(inputs_embeds=embedded, attention_mask=mask, generation_config=self.config)
        return [self.response(row) for row in output.tolist()]


@pytest.fixture(scope="module", params=["window", "full"])
def warm_started(request, tmp_path_factory):
    """Settings, and folder of a policy that has learnt the format, so that responses end properly."""
    folder = tmp_path_factory.mktemp(request.param)
    config = preset("frozen-lake-visual", {"agent.context": request.param, **WARM_START})
    num_tokens = config.rollout.max_response_tokens
    imitate(config.policy, config.environment, config.agent, num_tokens, frozenset(), folder)
    return request.param, config, str(folder)


@pytest.mark.benchmark
@pytest.mark.timeout(3600)
def test_rollout_three_times_transformers_speed(warm_started):
    name, config, folder = warm_started
    sampling, limit, agent = config.rollout.sampling, config.rollout.max_context_tokens, config.agent
    model, tokenizer = load_policy(folder)
    contexts = ContextBuilder(tokenizer, agent, sampling.max_response_tokens)
    workers = WorkerPool("torch", CORES)
    job = RolloutJob(folder, name, config.environment, agent, sampling, limit)

    def by_engine():
        return play_shards(workers, job, make_episodes(GROUPS, GROUP_SIZE, NUM_GROUPS // CORES))

    def by_generate():
        (episodes,) = make_episodes(GROUPS, GROUP_SIZE, NUM_GROUPS)
        session = SeeingGenerateSession(model, contexts.stop_token_ids, sampling)
        return play(session, contexts, tokenizer, config.environment, agent, sampling, limit, episodes)

    turns, ratio, words = against_generate(by_engine, by_generate, REPEATS)
    images = [place["image"] for row in turns["images"].to_pylist() for place in row]
    print(
        f"\n{name}: {turns.num_rows} turns that show {len(images)} images, {len(set(images))} of them different\n"
        f"{words}"
    )
    assert ratio >= 3
