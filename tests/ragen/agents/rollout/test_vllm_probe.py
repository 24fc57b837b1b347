"""Log-probs of a fixed prompt in transformers, to compare the engine's with; vLLM is not needed."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from starpo.ragen.agents.rollout.vllm_probe import Reference, compare, probe_ids
from starpo.ragen.core.errors import EngineError, PolicyError
from tests.ragen.agents.rollout.policies import MIXTURES, save_policy


@pytest.mark.parametrize("name", ["qwen2", *MIXTURES])
def test_logprobs_are_those_of_each_checkpoint(tmp_path, name):
    reference = Reference()
    for seed in (1, 2):
        folder = str(tmp_path / str(seed))
        model = save_policy(folder, name, seed)
        ids = torch.tensor(probe_ids(folder))
        with torch.inference_mode():
            expected = model(input_ids=ids[None]).logits[0].log_softmax(-1)[:-1].gather(-1, ids[1:, None])[:, 0]
        np.testing.assert_allclose(reference.logprobs(folder, ids.tolist()), expected, atol=1e-5)


@pytest.mark.parametrize("name", ["qwen2", "qwen3_moe"])
def test_weights_of_another_configuration_are_refused(tmp_path, name):
    save_policy(tmp_path, name)
    file = Path(tmp_path) / "model.safetensors"
    weights = load_file(file)
    norm = weights.pop("model.norm.weight")
    save_file(weights, file, {"format": "pt"})
    with pytest.raises(PolicyError, match=r"missing: model.norm.weight; config and weights do not belong together"):
        Reference().logprobs(str(tmp_path), probe_ids(str(tmp_path)))
    if name == "qwen2":
        save_file({**weights, "model.norm.weight": norm, "stranger": norm.clone()}, file, {"format": "pt"})
        with pytest.raises(PolicyError, match="1 weights are unknown to its configuration, such as stranger"):
            Reference().logprobs(str(tmp_path), probe_ids(str(tmp_path)))


@pytest.mark.parametrize("wrong", [-0.2, math.nan])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_wrong_logprob_is_enough(wrong, place):
    engine = [0.0, 0.0, 0.0]
    assert compare(engine, [0.0, -0.05, 0.0], 0.1, "key") == 0.05
    engine[place] = wrong
    with pytest.raises(EngineError, match="log-probs that differ"):
        compare(engine, [0.0, 0.0, 0.0], 0.1, "key")
