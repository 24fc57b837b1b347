"""Log-probs of a fixed prompt in transformers, to compare the engine's with; vLLM is not needed."""

import math
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from starpo.ragen.agents.policy.load import load_policy, load_tokenizer
from starpo.ragen.agents.rollout.engine import Request, Response
from starpo.ragen.agents.rollout.vllm.probe import NUM_PROBE_TOKENS, Probe, ProbeReference, compare
from starpo.ragen.core.errors import EngineError, PolicyError
from tests.ragen.agents.rollout.policies import MIXTURES, save_policy
from tests.visual_policies import FAMILIES, forward, save_random


@pytest.mark.ci
@pytest.mark.parametrize("name", ["qwen2", *MIXTURES])
def test_logprobs_are_those_of_each_checkpoint(tmp_path, name):
    reference = ProbeReference()
    for seed in (1, 2):
        folder = str(tmp_path / str(seed))
        model = save_policy(folder, name, seed)
        probe = Probe.of(folder, 100)
        ids = torch.tensor(probe.ids)
        with torch.inference_mode():
            expected = model(input_ids=ids[None]).logits[0].log_softmax(-1)[:-1].gather(-1, ids[1:, None])[:, 0]
        np.testing.assert_allclose(reference.logprobs(folder, probe), expected, atol=1e-5)


@pytest.mark.parametrize("name", ["qwen2", "qwen3_moe"])
def test_weights_of_another_configuration_are_refused(tmp_path, name):
    save_policy(tmp_path, name)
    file = Path(tmp_path) / "model.safetensors"
    weights = load_file(file)
    norm = weights.pop("model.norm.weight")
    save_file(weights, file, {"format": "pt"})
    with pytest.raises(PolicyError, match=r"missing: model.norm.weight; config and weights do not belong together"):
        ProbeReference().logprobs(str(tmp_path), Probe.of(str(tmp_path), 100))
    if name == "qwen2":
        save_file({**weights, "model.norm.weight": norm, "stranger": norm.clone()}, file, {"format": "pt"})
        with pytest.raises(PolicyError, match="1 weights are unknown to its configuration, such as stranger"):
            ProbeReference().logprobs(str(tmp_path), Probe.of(str(tmp_path), 100))


@pytest.mark.parametrize("place", [0, 50, 126])
def test_one_undefined_logprob_is_enough(place):
    engine = [0.0] * 127
    engine[place] = math.nan
    with pytest.raises(EngineError, match="differ from the checkpoint's own by nan"):
        compare(engine, [0.0] * 127, 0.1, "key")


def test_rounding_passes_despite_largest_difference():
    # bfloat16 on an H200: mean .032, 95th percentile .089; others measure .48 at the rarest token
    gaps = [0.02] * 115 + [0.089] * 11 + [0.48]
    assert compare(gaps, [0.0] * 127, 0.08, "key") == pytest.approx((2.3 + 0.979 + 0.48) / 127)


@pytest.mark.parametrize(
    "gaps", [[0.09] * 100, [0.25] * 6 + [0.0] * 94], ids=["a mean above its limit", "a tail above three times that"]
)
def test_more_than_rounding_fails(gaps):
    with pytest.raises(EngineError, match=r"at most 0\.08 and 0\.24 are allowed"):
        compare(gaps, [0.0] * 100, 0.08, "key")


def test_probe_uses_policys_tokens(tmp_path):
    save_policy(tmp_path, "qwen2")
    ids = Probe.of(str(tmp_path), 1000).ids
    assert len(ids) == NUM_PROBE_TOKENS
    assert load_tokenizer(tmp_path).decode(ids).startswith("The harbour lies on the north side")


@pytest.mark.thorough
def test_smollm2_passes_swapped_layers_fail(smollm2):
    """Measured: bfloat16 mean .030, 95th percentile .075; layers 27 and 28 swapped, the mildest pair, .313 and .93."""
    model, _ = load_policy(smollm2)
    probe = Probe.of(smollm2, 1000)
    ids = torch.tensor(probe.ids)

    def logprobs(scored):
        with torch.inference_mode():
            logprobs_TV = scored(input_ids=ids[None]).logits[0].float().log_softmax(-1)
        return logprobs_TV[:-1].gather(-1, ids[1:, None])[:, 0].tolist()

    right = ProbeReference().logprobs(smollm2, probe)
    assert compare(logprobs(deepcopy(model).to(torch.bfloat16)), right, 0.08, "key") < 0.05
    layers = model.model.layers
    layers[27], layers[28] = layers[28], layers[27]
    with pytest.raises(EngineError, match="than the one that is trained"):
        compare(logprobs(model), right, 0.08, "key")


@pytest.mark.parametrize("family", FAMILIES)
def test_image_encoder_is_probed(tmp_path, family):
    save_random(family, tmp_path)
    probe = Probe.of(str(tmp_path), 1000)
    (place,) = probe.images
    assert sum(probe.is_text) == len(probe.ids) - 1 - place.num_tokens
    reference = ProbeReference()
    before = reference.logprobs(str(tmp_path), probe)
    model, _ = load_policy(tmp_path)
    response = Response(probe.ids[40:], [], "length")
    request = Request("probe", probe.ids[:40], np.zeros(0), 0, images=probe.images)
    with torch.inference_mode():
        np.testing.assert_allclose(before[-len(response.token_ids) :], forward(model, request, response), atol=1e-4)
    file = tmp_path / "model.safetensors"
    weights = load_file(file)
    changed = {name: weight + 0.5 for name, weight in weights.items() if "vis" in name and "mlp" in name}
    save_file(weights | changed, file, {"format": "pt"})
    assert np.abs(np.subtract(reference.logprobs(str(tmp_path), probe), before)).max() > 0.01
