"""The documented engine on weights rounded to int8 (docs/grids/int8): near the policy, and not the policy."""

import importlib.util
from pathlib import Path

import pytest
import torch

from starpo.ragen.agents.rollout.engine import Request
from starpo.ragen.agents.rollout.torch.engine import TorchEngine
from starpo.ragen.core.seeding import token_uniforms
from tests.ragen.agents.rollout.policies import SAMPLING, STOPS, save_policy

ROOT = Path(__file__).parents[4]


@pytest.fixture(scope="module")
def int8_engine():
    spec = importlib.util.spec_from_file_location("int8_engine", ROOT / "docs/grids/int8/int8_engine.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_rows_rounded_to_int8(int8_engine):
    weight = torch.randn(3, 2000, generator=torch.Generator().manual_seed(0))
    rounded = int8_engine.rounded(weight)
    steps = weight.abs().amax(-1, keepdim=True) / 127
    assert (rounded / steps - (rounded / steps).round()).abs().max() < 1e-4
    assert (rounded - weight).abs().max() <= steps.max() / 2 + 1e-6
    assert torch.equal(int8_engine.rounded(weight[0]), weight[0])


def test_samples_near_the_policy(int8_engine, tmp_path):
    save_policy(tmp_path, "llama")
    requests = [Request("s", list(range(20, 40)), token_uniforms(0, 0, 64), 0)]
    responses = []
    for engine in (TorchEngine(device="cpu"), int8_engine.Int8Engine(device="cpu")):
        engine.load(str(tmp_path), "k")
        responses += engine.session(SAMPLING, STOPS).generate(requests)
    exact, near = responses
    assert near.token_ids[0] == exact.token_ids[0]
    assert 0 < abs(near.logprobs[0] - exact.logprobs[0]) < 0.1
