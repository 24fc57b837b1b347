"""A small stored run whose prompts show pictures, played by the real rollout loop."""

from itertools import cycle

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
from starpo.ragen.store import Facts, Store
from starpo.schemas.manifest import Stage
from tests.examples import put_folder

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
def visual_run(tmp_path, request):
    """Store with the run 'seen'; trajectory g0-0, whose prompts show two pictures from turn 1 on; parameter: agent."""
    agent = getattr(request, "param", AGENT)
    store = Store(str(tmp_path / "store"))
    config = StarPOConfig(environment=LAKE, agent=agent, iterations=1, policy={"type": "tiny", "patch_size": 32})
    store.runs.create("seen", flow="starpo", preset=None, config=config.model_dump(mode="json"))
    TOKENIZER.save_pretrained(tmp_path / "tokenizer")
    put_folder(store, "checkpoint", str(tmp_path / "tokenizer"), facts("c" * 32))
    store.runs.record_stage("seen", 0, "warm_start", {"checkpoint": "c" * 32})
    episode = Episode("g0", 0, 1, dynamics_seed(1, 0), sampling_seed(1, 0))
    contexts = ContextBuilder(TOKENIZER, agent, 100)
    played = play(Walker(), contexts, TOKENIZER, LAKE, agent, SamplingConfig(max_response_tokens=100), 999, [episode])
    for kind, table in zip(("turns", "turn_images", "images"), take_images(played), strict=True):
        store.put_table(kind, table, facts("d" * 32))
    store.runs.record_stage("seen", 0, "rollout", dict.fromkeys(("turns", "turn_images", "images"), "d" * 32))
    return store


def facts(key: str) -> Facts:
    return Facts(key=key, stage=STAGE, settings={"agent": {"observation": "image"}}, inputs={}, seed=0)
