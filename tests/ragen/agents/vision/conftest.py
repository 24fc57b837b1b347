"""A small visual policy with random weights, and pictures of lakes."""

import pytest
import torch

from starpo.ragen.agents.policy.save import save_policy
from starpo.ragen.agents.policy.tiny import make_model
from starpo.ragen.agents.policy.tokenizer import make_tokenizer
from starpo.ragen.agents.vision.image import image_of
from starpo.ragen.config.policy import TinyPolicy
from starpo.ragen.envs import make
from starpo.ragen.envs.frozen_lake.environment import FrozenLakeSettings

POLICY = TinyPolicy(
    hidden_size=32, num_layers=2, num_heads=2, num_kv_heads=1, intermediate_size=48, max_positions=256, patch_size=32
)


@pytest.fixture(scope="session")
def tokenizer():
    return make_tokenizer(patch_size=32)


@pytest.fixture(scope="session")
def model(tokenizer):
    model = make_model(POLICY, tokenizer)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        for parameter in model.parameters():  # the usual small weights give a flat distribution, which hides errors
            torch.nn.init.normal_(parameter, std=0.3)
    return model


@pytest.fixture(scope="session")
def folder(model, tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("policy")
    save_policy(model, tokenizer, folder)
    return str(folder)


@pytest.fixture(scope="session")
def pictures():
    """Images of six lakes of 2 x 2 cells, four tokens each."""
    lake = make(FrozenLakeSettings(size=2))
    images = []
    for seed in range(100):
        lake.reset(seed=seed)
        if (image := image_of(lake)) not in images:
            images.append(image)
    return images[:6]
