"""A folder is understood in one way, or refused with one message before anything is built from it."""

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

from starpo.ragen.agents.policy import load
from starpo.ragen.agents.policy.folder import check_folder, declared_end_ids, num_positions, refusing
from starpo.ragen.agents.policy.source import resolve_policy
from starpo.ragen.agents.policy.tokenizer import make_tokenizer
from starpo.ragen.agents.rollout.torch.engine import TorchEngine
from starpo.ragen.config.policy import PretrainedPolicy
from starpo.ragen.core.errors import PolicyError

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"


def edit(file: Path, **changes: Any) -> None:
    file.write_text(json.dumps((json.loads(file.read_text()) if file.exists() else {}) | changes))


def change_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    weights = load_file(folder / WEIGHTS)
    change(weights)
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})


def with_head(factor: float) -> Callable[[dict[str, torch.Tensor]], None]:
    def change(weights: dict[str, torch.Tensor]) -> None:
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"] * factor

    return change


@pytest.mark.parametrize(
    "read", [check_folder, load.load_policy, lambda f: TorchEngine(device="cpu").load(str(f), "k")]
)
def test_untied_output_layer_refused_by_readers(folder: Path, read: Callable[[Path], Any]) -> None:
    change_weights(folder, with_head(2.0))
    with pytest.raises(PolicyError, match=r"ties the output layer .* lm_head\.weight with other values"):
        read(folder)


def test_duplicated_output_layer_stays_tied(folder: Path, complete: Path) -> None:
    change_weights(folder, with_head(1.0))
    model, _ = load.load_policy(folder)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert len(list(model.parameters())) == len(list(load.load_policy(complete)[0].parameters()))


def test_own_output_layer_read_when_configured(folder: Path) -> None:
    change_weights(folder, with_head(2.0))
    edit(folder / "config.json", tie_word_embeddings=False)
    model, _ = load.load_policy(folder)
    assert torch.equal(model.lm_head.weight, 2 * model.model.embed_tokens.weight)


def shard(folder: Path, name: str) -> None:
    (folder / WEIGHTS).rename(folder / name)
    names = load_file(folder / name)
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": dict.fromkeys(names, name)}))


def test_digest_covers_renamed_weights(folder: Path) -> None:
    shard(folder, "weights-1.safetensors")
    before = PretrainedPolicy(name_or_path=str(folder))
    weights = {name: 2 * weight for name, weight in load_file(folder / "weights-1.safetensors").items()}
    save_file(weights, folder / "weights-1.safetensors", metadata={"format": "pt"})
    assert PretrainedPolicy(name_or_path=str(folder)).digest != before.digest
    with pytest.raises(PolicyError, match="have changed"):
        resolve_policy(before)


@pytest.mark.parametrize(
    "name", ["spiece.model", "sentencepiece.bpe.model", "merges.txt", "qwen.tiktoken", "bpe.codes"]
)
def test_digest_covers_every_vocabulary_file(folder: Path, name: str) -> None:
    before = PretrainedPolicy(name_or_path=str(folder)).digest
    (folder / name).write_text("a")
    assert PretrainedPolicy(name_or_path=str(folder)).digest != before


def test_digest_covers_further_chat_templates(folder: Path) -> None:
    before = PretrainedPolicy(name_or_path=str(folder)).digest
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tool_use.jinja").write_text("a")
    assert PretrainedPolicy(name_or_path=str(folder)).digest != before


@pytest.mark.parametrize("name", ["evil.bin", "../model.safetensors", "/tmp/model.safetensors", "a/b.safetensors"])
def test_index_naming_other_files_refused(folder: Path, name: str) -> None:
    shard(folder, "weights-1.safetensors")
    edit(folder / INDEX, weight_map={"a": "weights-1.safetensors", "b": name})
    with pytest.raises(PolicyError, match="only safetensors in the same folder are read"):
        load.load_policy(folder)


def test_two_sets_of_weights_are_refused(folder: Path) -> None:
    shutil.copy(folder / WEIGHTS, folder / "kept.safetensors")
    shard(folder, "weights-1.safetensors")
    (folder / "kept.safetensors").rename(folder / WEIGHTS)
    with pytest.raises(PolicyError, match=r"readers would take one or the other"):
        check_folder(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"_attn_implementation": "owner/repo"}, "asks for code that transformers may fetch"),
        ({"attn_implementation": "flash_attention_2"}, "asks for code that transformers may fetch"),
        ({"text_config": {"_attn_implementation": "a/b"}}, "asks for code that transformers may fetch"),
        ({"experts_implementation": "owner/repo"}, "asks for code that transformers may fetch"),
        ({"transformers_weights": "other.safetensors"}, "names other weights"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, r"quantised weights \(gptq\)"),
        ({"quantization_config": 4}, r"quantised weights \(4\)"),
        ({"hidden_size": "64"}, "hidden_size = '64' is not a whole number above 0"),
        ({"hidden_size": None}, "hidden_size is null"),
        ({"hidden_size": 32.5}, "hidden_size = 32.5 is not"),
        ({"hidden_size": True}, "hidden_size = True is not"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps is NaN"),
        ({"num_hidden_layers": 10**9}, "asks for 1,000,000,000 layers"),
        ({"hidden_size": 10**9}, "far more than the weights hold"),
        ({"vocab_size": 10**9}, "far more than the weights hold"),
        ({"head_dim": 10**9}, "far more than the weights hold"),
        ({"num_attention_heads": 0}, "num_attention_heads = 0 is not"),
        ({"num_key_value_heads": -1}, "num_key_value_heads = -1 is not"),
        ({"max_position_embeddings": 10**12}, "1,000,000,000,000 positions"),
        ({"pad_token_id": 10**9}, "pad_token_id = 1000000000 is not in the vocabulary"),
        ({"pad_token_id": "end"}, "pad_token_id = 'end' is not in the vocabulary"),
        ({"num_key_value_heads": 3}, "cannot be loaded as a causal language model|do not have the shape"),
        ({"eos_token_id": "end"}, "neither a token id nor a list of ids"),
        ({"rope_parameters": 7}, "cannot be loaded as a causal language model"),
        ({"hidden_act": 3}, "cannot be loaded as a causal language model"),
        ({"layer_types": ["strange"]}, "cannot be loaded as a causal language model"),
    ],
)
def test_an_odd_configuration_is_one_error(folder: Path, changes: dict[str, Any], message: str) -> None:
    edit(folder / "config.json", **changes)
    with pytest.raises(PolicyError, match=message) as error:
        load.load_policy(folder)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["7", "[]", '"x"', "null", "{", "[" * 100_000, "\udcff"])
@pytest.mark.parametrize("name", ["config.json", INDEX])
def test_non_object_file_is_one_error(folder: Path, name: str, text: str) -> None:
    (folder / name).write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(PolicyError, match=f"{name}' is damaged"):
        load.load_policy(folder)


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"7",
        b"{}x",
        b'{"a": 7}',
        b'{"a": {"dtype": "F32"}}',
        b'{"a": {"dtype": "F32", "shape": 3, "data_offsets": []}}',
    ],
)
def test_damaged_weight_header_is_one_error(folder: Path, header: bytes) -> None:
    (folder / WEIGHTS).write_bytes(struct.pack("<Q", len(header)) + header)
    with pytest.raises(PolicyError, match=r"model\.safetensors' cannot be read|far more than the weights hold"):
        load.load_policy(folder)
    (folder / WEIGHTS).write_bytes(b"\xff" * 64)
    with pytest.raises(PolicyError, match="no header of safetensors"):
        load.load_policy(folder)


def test_panicking_tokenizer_pattern_is_one_error(folder: Path) -> None:
    file = folder / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    tokenizer["pre_tokenizer"] = {"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated", "invert": False}
    file.write_text(json.dumps(tokenizer))
    with pytest.raises(PolicyError, match=r"the tokenizer in '.*' cannot be read"):
        load.load_tokenizer(folder)


def test_tokenizers_panic_is_one_error() -> None:
    panic = type("PanicException", (BaseException,), {})  # as pyo3_runtime's derives
    with pytest.raises(PolicyError, match="the tokenizer: PanicException: no match"), refusing("the tokenizer"):
        raise panic("no match")
    with pytest.raises(KeyboardInterrupt), refusing("the tokenizer"):
        raise KeyboardInterrupt


@pytest.mark.parametrize("content", [7, [], {"added_tokens": 7}, {"model": {"type": "BPE", "vocab": {"a": -1}}}])
def test_an_odd_tokenizer_is_one_error(folder: Path, content: Any) -> None:
    (folder / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(PolicyError, match=r"the tokenizer in '.*' cannot be read"):
        load.load_tokenizer(folder)


def test_million_added_tokens_refused_quickly(folder: Path) -> None:
    token = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    edit(folder / "tokenizer.json", added_tokens=[token | {"id": n, "content": f"<{n}>"} for n in range(60_000)])
    with pytest.raises(PolicyError, match=r"adds 60,000 tokens to the vocabulary; at most 50,000"):
        load.load_tokenizer(folder)


def test_end_tokens_of_both_configurations_declared(folder: Path) -> None:
    edit(folder / "generation_config.json", eos_token_id=[2, 0])
    edit(folder / "config.json", eos_token_id=5)
    expected = {2: "generation_config.json", 0: "generation_config.json", 5: "config.json"}
    assert declared_end_ids(folder) == expected
    assert load.load_tokenizer(folder).declared_end_ids == expected
    edit(folder / "generation_config.json", eos_token_id=None)
    assert declared_end_ids(folder) == {5: "config.json"}


def test_end_tokens_survive_starting_copy(folder: Path, tmp_path: Path) -> None:
    edit(folder / "generation_config.json", eos_token_id=[2, 0])
    load.copy_policy(PretrainedPolicy(name_or_path=str(folder)), tmp_path / "copy")
    assert list(declared_end_ids(tmp_path / "copy"))[:2] == [2, 0]


def test_positions(folder: Path) -> None:
    assert num_positions(folder) == 2048
    edit(folder / "config.json", text_config={"max_position_embeddings": 99})
    assert num_positions(folder) == 99
    (folder / "config.json").write_text("{}")
    assert num_positions(folder) is None


def test_vocabulary_larger_than_tokenizer_accepted(tmp_path: Path) -> None:
    config = LlamaConfig(
        vocab_size=1000, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        intermediate_size=24, pad_token_id=-1,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    assert load.load_policy(tmp_path)[0].config.vocab_size == 1000
