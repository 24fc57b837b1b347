"""Learning from contexts with images: shared prefixes and plain passes agree, and images are computed once."""

import numpy as np
import pytest
import torch
from transformers.models.qwen2.modeling_qwen2 import Qwen2RMSNorm

from starpo.ragen.agents.policy.tiny import make_model
from starpo.ragen.agents.policy.tokenizer import make_tokenizer
from starpo.ragen.agents.vision import embeddings
from starpo.ragen.agents.vision.image import Image
from starpo.ragen.agents.vision.image_table import ImageTable
from starpo.ragen.config.policy import TinyPolicy
from starpo.ragen.learning.learners.batches import micro_batches, rectangles
from starpo.ragen.learning.learners.scoring import ResponseScores
from starpo.ragen.learning.learners.tokens import ResponseTokens
from starpo.ragen.learning.learners.trajectories import Segment, Trajectory

SIZES = {"hidden_size": 32, "num_layers": 2, "num_heads": 2, "num_kv_heads": 1, "intermediate_size": 48}


@pytest.fixture
def policy(monkeypatch):
    """A policy that computes in float64, its norms too, which transformers computes in float32."""

    def norm(self, hidden):
        return self.weight * hidden * torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)

    monkeypatch.setattr(Qwen2RMSNorm, "forward", norm)
    return make_model(TinyPolicy(patch_size=32, **SIZES), make_tokenizer(patch_size=32)).double()


@pytest.fixture(scope="module")
def tokens():
    """Six episodes of two turns, with the same text; two images in the first turn, and three in the second."""
    rng = np.random.default_rng(0)
    shown = [Image(rng.integers(0, 256, (64, 32, 3), np.uint8)) for _ in range(5)]
    table = ImageTable()
    trajectories = []
    for number in range(6):
        turns = [[7, *table.ids(image, 2), 8] for image in (shown[number % 2], shown[2 + number // 2])]
        token_ids = np.array([*turns[0], 20, 21, *turns[1], 22, 23])
        mask = np.isin(token_ids, [20, 21, 22, 23])
        turn = np.where(mask, np.arange(len(mask)) // 6, -1)
        segment = Segment(token_ids, mask, np.zeros(12, np.float32), turn, np.zeros(12, np.int8))
        two = np.zeros(2, int), np.zeros(2, bool), np.ones(2)
        trajectories.append(Trajectory(str(number), "g", (segment,), np.zeros(2), 0.0, 0.0, *two, images=table))
    return ResponseTokens(trajectories)


def learned(policy, tokens, batches):
    """Log-probs of all tokens, and the gradient of a weighted sum of them."""
    policy.zero_grad()
    logprobs_N, weight_N = torch.zeros(len(tokens), dtype=torch.float64), torch.arange(1.0, len(tokens) + 1)
    for batch in batches:
        (logprobs_M,) = ResponseScores(policy)(batch, 1.0)
        (logprobs_M * weight_N[batch.token_M]).sum().backward()
        logprobs_N[batch.token_M] = logprobs_M.detach()
    return logprobs_N, torch.cat([parameter.grad.flatten() for parameter in policy.parameters()])


def test_shared_prefixes_and_plain_passes_agree(policy, tokens):
    everything = np.arange(6)
    shared = micro_batches(tokens, everything, 1000, row_tokens=200)
    assert sum(batch.token_ids_ST.numel() for batch in shared) < 6 * 12
    plain = learned(policy, tokens, rectangles(tokens, everything, 6))
    for one, other in zip(learned(policy, tokens, shared), plain, strict=True):
        torch.testing.assert_close(one, other, atol=1e-12, rtol=1e-9)
    assert policy.model.vision.colours.weight.grad.abs().max() > 0
    first = plain[0].view(6, 4)[:, 0]
    assert torch.equal(first[0::2], first[[0, 0, 0]])  # what they saw was the same
    assert first[0] != first[1]  # and here the images alone differ


def test_an_image_is_computed_once_for_a_micro_batch(policy, tokens, monkeypatch):
    computed = []
    features = embeddings.image_features

    def counted(model, images):
        computed.append(images)
        return features(model, images)

    monkeypatch.setattr(embeddings, "image_features", counted)
    (batch,) = micro_batches(tokens, np.arange(6), 1000, row_tokens=200)
    ResponseScores(policy)(batch, 1.0)
    assert computed == [tuple(tokens.images.images)]
    one, other = rectangles(tokens, [0, 1], 2)
    assert (len(one.images), len(other.images)) == (2, 2)
    assert one.images[0] != other.images[0]
