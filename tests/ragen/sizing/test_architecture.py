"""Parameter counts by formula equal those of instantiated models."""

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, Qwen2ForCausalLM

from starpo.flows.presets import preset
from starpo.ragen.agents.policy.tiny import make_model, make_tokenizer
from starpo.ragen.agents.policy.tokenizer import extra_vocabulary
from starpo.ragen.config.policy import PolicyConfig, PretrainedPolicy, TinyPolicy
from starpo.ragen.core.errors import ConfigError, PolicyError
from starpo.ragen.learning.learners.models.critic import Critic
from starpo.ragen.sizing.architecture import Architecture, architecture_of, known_architectures
from tests.ragen.sizing.models import model_of

PUBLISHED = {  # total sizes of the published tensors
    "HuggingFaceTB/SmolLM2-135M": 134_515_008,
    "Qwen/Qwen2.5-0.5B": 494_032_768,
    "Qwen/Qwen2.5-1.5B": 1_543_714_304,
    "Qwen/Qwen2.5-3B": 3_085_938_688,
    "Qwen/Qwen2.5-7B": 7_615_616_512,
    "Qwen/Qwen2.5-14B": 14_770_033_664,
    "Qwen/Qwen2.5-32B": 32_763_876_352,
    "Qwen/Qwen2.5-72B": 72_706_203_648,
}


def on_meta(architecture: Architecture) -> Qwen2ForCausalLM:
    with torch.device("meta"):
        return model_of(architecture)


def of_policy(policy: PolicyConfig) -> Architecture:
    return architecture_of(preset("sokoban").model_copy(update={"policy": policy}))


def count(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("name", PUBLISHED)
def test_known_models_match_published_size(name: str) -> None:
    assert known_architectures()[name].num_parameters == PUBLISHED[name]


@pytest.mark.parametrize("name", ["Qwen/Qwen2.5-0.5B", "Qwen/Qwen2.5-7B"])
def test_formula_is_the_instantiated_model(name: str) -> None:
    architecture = known_architectures()[name]
    model = on_meta(architecture)
    assert count(model) == architecture.num_parameters
    assert count(model.base_model) == architecture.num_backbone_parameters
    linear = sum(m.weight.numel() for m in model.base_model.modules() if isinstance(m, torch.nn.Linear))
    assert linear == architecture.num_matrix_parameters


@pytest.mark.parametrize(
    ("name", "form"), [("sokoban", "free"), ("sokoban", "grounding"), ("countdown", "free")], ids=lambda value: value
)
def test_the_embedded_policy_and_its_critic(name: str, form: str) -> None:
    """Words that an environment or a form of reasoning adds are tokens too."""
    config = preset(name, {"agent.form": form})
    assert isinstance(config.policy, TinyPolicy)
    tokenizer = make_tokenizer(extra_vocabulary(config.policy, config.environment, form))
    policy, architecture = make_model(config.policy, tokenizer), architecture_of(config)
    assert count(policy) == architecture.num_parameters
    assert count(Critic.from_policy(policy)) == architecture.num_critic_parameters


@pytest.mark.ci
def test_adapter_count_matches_peft() -> None:
    peft = pytest.importorskip("peft")
    config = TinyPolicy(num_layers=2)
    policy, architecture = make_model(config, make_tokenizer()), of_policy(config)
    for targets in (None, ["q_proj", "down_proj"]):
        names = targets or list(architecture.linear_maps)
        model = peft.get_peft_model(make_model(config, make_tokenizer()), peft.LoraConfig(r=8, target_modules=names))
        trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
        assert architecture.num_adapter_parameters(8, targets) == trained
    assert count(policy) == architecture.num_parameters


def test_unknown_adapter_target_fails_early() -> None:
    policy = of_policy(TinyPolicy())
    assert policy.num_adapter_parameters(4, ["q_proj", "q_proj"]) == policy.num_adapter_parameters(4, ["q_proj"])
    with pytest.raises(ConfigError, match=r"no linear layers named 'q_porj' .did you mean 'q_proj'"):
        policy.num_adapter_parameters(4, ["v_proj", "q_porj"])


@pytest.mark.parametrize("kind", ["qwen2", "qwen3", "llama", "mistral"])
def test_a_folders_configuration_is_read(tmp_path: Path, kind: str) -> None:
    sizes = {
        "vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "intermediate_size": 48, "tie_word_embeddings": False, "head_dim": 8,
    }  # fmt: skip
    config = AutoConfig.for_model(kind, **sizes)
    config.save_pretrained(tmp_path)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    architecture = of_policy(PretrainedPolicy(name_or_path=str(tmp_path)))
    assert architecture.num_parameters == count(model)


def test_unknown_model_is_not_estimated() -> None:
    with pytest.raises(
        PolicyError, match=r"neither a folder .* it cannot be estimated; known: .*Qwen/Qwen2.5-0.5B, "
    ) as e:
        of_policy(PretrainedPolicy(name_or_path="Qwen/Qwen3-0.6B"))
    assert "did you mean" not in str(e.value)
    assert "--set policy.name_or_path=FOLDER" in str(e.value)


def test_an_unknown_type_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mamba"}))
    with pytest.raises(PolicyError, match="models of type 'mamba' are not counted here; known types: qwen2"):
        of_policy(PretrainedPolicy(name_or_path=str(tmp_path)))


def test_a_damaged_configuration_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "qwen2"')
    with pytest.raises(PolicyError, match="cannot be read as a model's configuration: JSONDecodeError"):
        of_policy(PretrainedPolicy(name_or_path=str(tmp_path)))
