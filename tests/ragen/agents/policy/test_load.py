import json
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from starpo.ragen.agents.policy import load, save
from starpo.ragen.agents.policy.tiny import make_model
from starpo.ragen.agents.policy.tokenizer import make_tokenizer
from starpo.ragen.config.policy import PretrainedPolicy, TinyPolicy
from starpo.ragen.core.errors import PolicyError

SMALL = TinyPolicy(hidden_size=32, num_layers=1, num_heads=2, num_kv_heads=1, intermediate_size=32)


def test_saved_policy_loads_unchanged(complete: Path) -> None:
    model, tokenizer = load.load_policy(str(complete), "float32")
    saved = make_model(SMALL, make_tokenizer()).state_dict()
    assert all(torch.equal(saved[name], weight) for name, weight in model.state_dict().items())
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert not model.training
    assert tokenizer.decode(tokenizer.encode("#____#\n√")) == "#____#\n√"


def test_qwen2_tokenizer_splits_as_saved(folder: Path) -> None:
    # A folder as others write it: AutoTokenizer replaces the folder's own splitting rule by Qwen2's, and every
    # map row becomes six tokens.
    declared = folder / "tokenizer_config.json"
    declared.write_text(json.dumps({k: v for k, v in json.loads(declared.read_text()).items() if k != "auto_map"}))
    text = "user\nP 1 2 X 3 3 O 4 1\n#____#\n<think>X down left</think><answer>Up || Left</answer>"
    assert load.load_tokenizer(folder).encode(text) == make_tokenizer().encode(text)
    assert load.load_policy(folder)[1].tokenize("#____#\n") == ["#____#Ċ"]


def test_loading_and_saving_without_progress_bars(complete: Path, capfd: pytest.CaptureFixture[str]) -> None:
    load.copy_policy(PretrainedPolicy(name_or_path=str(complete)), complete.parent / "quiet")
    assert capfd.readouterr().err == ""
    with save.without_progress_bars():
        pass
    assert transformers.utils.logging.is_progress_bar_enabled()


def test_weights_have_requested_type(complete: Path) -> None:
    assert {p.dtype for p in load.load_policy(complete, "bfloat16")[0].parameters()} == {torch.bfloat16}
    assert {p.dtype for p in load.load_policy(complete, torch.float32)[0].parameters()} == {torch.float32}


def remove(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).unlink()


def edit_config(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_no_such_folder(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match=r"is not there; expected a folder with config\.json"):
        load.load_policy(str(tmp_path / "absent"))


def test_file_in_place_of_folder(tmp_path: Path) -> None:
    (tmp_path / "model").write_text("")
    with pytest.raises(PolicyError, match="is a file, not a folder"):
        load.load_policy(str(tmp_path / "model"))


def test_pickled_weights_are_not_read(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(PolicyError, match=r"pickled weights .* are not read"):
        load.load_policy(folder)


def test_a_missing_shard_is_named(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(PolicyError, match=r"has no weights model-00002-of-00002\.safetensors"):
        load.load_policy(folder)


@pytest.mark.parametrize("text", ["{", "[]", "{}"])
def test_a_damaged_index_is_named(folder: Path, text: str) -> None:
    (folder / "model.safetensors.index.json").write_text(text)
    with pytest.raises(PolicyError, match=r"model\.safetensors\.index\.json' is damaged"):
        load.load_policy(folder)


def test_a_folder_without_a_tokenizer(folder: Path) -> None:
    remove(folder, "tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
    for attempt in (load.load_policy, load.load_tokenizer):
        with pytest.raises(PolicyError, match=r"has no tokenizer .*save_pretrained"):
            attempt(folder)


def test_truncated_weights(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(PolicyError, match=r"model\.safetensors' cannot be read: .* header describes"):
        load.load_policy(folder)


def test_missing_weights_are_an_error(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.0.self_attn.q_proj.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(PolicyError, match=r"weights are missing: model\.layers\.0\.self_attn\.q_proj\.weight"):
        load.load_policy(folder)


def test_weights_of_another_shape_are_named(folder: Path) -> None:
    edit_config(folder, intermediate_size=48)
    with pytest.raises(PolicyError, match=r"do not have the shape that config\.json asks for: model\.layers\.0\.mlp"):
        load.load_policy(folder)


@pytest.mark.ci
def test_an_architecture_that_does_not_generate(folder: Path) -> None:
    edit_config(folder, model_type="vit", architectures=["ViTModel"])
    with pytest.raises(PolicyError, match="cannot be loaded as a causal language model"):
        load.load_policy(folder)


def test_model_code_is_never_run(folder: Path) -> None:
    edit_config(folder, model_type="strange", auto_map={"AutoModelForCausalLM": "evil.Model", "AutoConfig": "evil.C"})
    (folder / "evil.py").write_text("raise SystemExit('ran')")
    with pytest.raises(PolicyError):
        load.load_policy(folder)


def test_a_tokenizer_of_another_model(folder: Path) -> None:
    tokenizer = make_tokenizer()
    tokenizer.add_tokens([f"extra{n}" for n in range(9)])
    tokenizer.save_pretrained(folder)
    with pytest.raises(PolicyError, match="they do not belong together"):
        load.load_policy(folder)


def test_copied_policy_is_complete(complete: Path, tmp_path: Path) -> None:
    headline = load.copy_policy(PretrainedPolicy(name_or_path=str(complete)), tmp_path / "copy")
    model, tokenizer = load.load_policy(tmp_path / "copy")
    assert headline == {"num_parameters": float(model.num_parameters()), "vocabulary_size": float(len(tokenizer))}


@pytest.mark.parametrize("value", [float("-inf"), float("nan")])
def test_infinite_logits_are_the_models_fault(folder: Path, value: float) -> None:
    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"][0] = value
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(PolicyError, match=r"logits of a short text that are not finite, .* before any training"):
        load.copy_policy(PretrainedPolicy(name_or_path=str(folder)), folder.parent / "copy")
