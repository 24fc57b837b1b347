"""What a model that sees takes: parameters, tokens of an image and activations by formula are those of real models."""

import pytest
import torch

from starpo.flows.presets import preset
from starpo.ragen.agents.policy.load import load_policy
from starpo.ragen.agents.policy.tiny import make_model
from starpo.ragen.agents.vision.embeddings import image_features
from starpo.ragen.context_fit import tiny_tokenizer
from starpo.ragen.sizing.architecture import architecture_of, known_architectures
from starpo.ragen.sizing.memory import image_bytes
from starpo.ragen.sizing.tokens import count_tokens
from tests.ragen.agents.vision.test_families import FAMILIES, folder, shown  # noqa: F401  (fixtures)


def count(model):
    return sum(parameter.numel() for parameter in model.parameters())


def of_folder(path):
    settings = {"policy.name_or_path": path, "agent.observation": "image", "agent.max_turns": 1}
    return preset("sokoban-smollm2", settings | {"environment.type": "frozen_lake", "environment.size": 3})


def test_the_embedded_policy_is_counted_whole():
    config = preset("frozen-lake-visual")
    model = make_model(config.policy, tiny_tokenizer(config))
    assert architecture_of(config).num_parameters == count(model)
    assert count_tokens(config).image == 4 * 4 + 2


def test_known_vision_model_matches_published_size():
    assert known_architectures()["Qwen/Qwen2.5-VL-3B"].num_parameters == 3_754_622_976
    assert count_tokens(preset("sokoban-visual-3b")).image == 7 * 7 + 2


def test_parameters_and_image_tokens_match_model(folder):  # noqa: F811
    config = of_folder(folder)
    model, _ = load_policy(folder)
    architecture = architecture_of(config)
    assert architecture.num_parameters == count(model)
    assert (
        count_tokens(config).image
        == {"smolvlm": 16 + 3, "qwen2_5_vl": 9 + 2, "qwen3_vl": 9 + 2}[model.config.model_type]
    )


def test_image_activations_match_torch(folder, shown):  # noqa: F811
    """Within 1 percent; the rest is statistics of norms and attention."""
    model, tokenizer = load_policy(folder)
    vision = architecture_of(of_folder(folder)).vision
    parameters, kept = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}, {}

    def keep(tensor):
        if tensor.untyped_storage().data_ptr() not in parameters:
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        image_features(model.base_model, shown)
    measured = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
    num_tokens = sum(tokenizer.image_tokens.num_tokens(image) for image in shown)
    assert image_bytes(vision, num_tokens, "float32") == pytest.approx(measured, rel=0.01)
