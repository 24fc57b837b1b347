"""GGUF files become folders in Hugging Face's layout, once for each content."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM

from starpo.ragen.agents.policy import gguf as conversion
from starpo.ragen.agents.policy.folder import check_folder
from starpo.ragen.agents.policy.load import load_policy
from starpo.ragen.agents.policy.source import resolve_policy
from starpo.ragen.config.policy import PretrainedPolicy
from starpo.ragen.core.errors import MissingPackageError, PolicyError

WIDTH, LAYERS, POSITIONS = 32, 2, 128
TOKENS = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "ab", "<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"


def write_gguf(file: Path, architecture: str = "llama") -> dict[str, np.ndarray]:
    """Write a Llama of two layers without an output layer of its own, in 8 bits; return its embedding and a matrix."""
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(file, architecture)
    writer.add_context_length(POSITIONS)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(64)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10_000.0)
    writer.add_vocab_size(len(TOKENS))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(TOKENS)
    writer.add_token_types([1] * (len(TOKENS) - 3) + [3] * 3)
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(len(TOKENS) - 2)
    writer.add_eos_token_id(len(TOKENS) - 1)
    writer.add_chat_template(TEMPLATE)
    rng = np.random.default_rng(0)
    q8 = gguf.GGMLQuantizationType.Q8_0
    shapes = {"token_embd": (len(TOKENS), WIDTH)}
    for layer in range(LAYERS):
        shapes |= {
            f"blk.{layer}.attn_q": (WIDTH, WIDTH), f"blk.{layer}.attn_k": (WIDTH // 2, WIDTH),
            f"blk.{layer}.attn_v": (WIDTH // 2, WIDTH), f"blk.{layer}.attn_output": (WIDTH, WIDTH),
            f"blk.{layer}.ffn_gate": (64, WIDTH), f"blk.{layer}.ffn_up": (64, WIDTH),
            f"blk.{layer}.ffn_down": (WIDTH, 64),
        }  # fmt: skip
    written = {}
    for name, shape in shapes.items():
        packed = gguf.quantize(rng.normal(size=shape, scale=0.1).astype(np.float32), q8)
        writer.add_tensor(f"{name}.weight", packed, raw_dtype=q8)
        written[name] = gguf.dequantize(packed, q8)
    for name in ("output_norm", *(f"blk.{n}.{norm}_norm" for n in range(LAYERS) for norm in ("attn", "ffn"))):
        writer.add_tensor(f"{name}.weight", np.ones(WIDTH, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return written


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_gguf_file_becomes_plain_folder(tmp_path: Path, cache: Path, capfd: pytest.CaptureFixture[str]) -> None:
    written = write_gguf(tmp_path / "m.gguf")
    policy = PretrainedPolicy(name_or_path=str(tmp_path / "m.gguf"))
    folder = Path(resolve_policy(policy))
    assert folder == cache / "starpo" / "models" / policy.digest
    assert [file.name for file in folder.parent.iterdir()] == [policy.digest]
    assert capfd.readouterr().err == ""
    config = json.loads((folder / "config.json").read_text())
    assert "quantization_config" not in config
    assert (config["dtype"], config["tie_word_embeddings"]) == ("float32", True)
    plain = AutoModelForCausalLM.from_pretrained(folder)
    np.testing.assert_array_equal(plain.model.embed_tokens.weight.detach(), written["token_embd"])
    np.testing.assert_array_equal(plain.model.layers[1].mlp.down_proj.weight.detach(), written["blk.1.ffn_down"])
    assert plain.lm_head.weight is plain.model.embed_tokens.weight
    model, tokenizer = load_policy(folder)
    ids = tokenizer.encode("<|im_start|>user\nUp<|im_end|>", add_special_tokens=False)
    assert tokenizer.decode(ids) == "<|im_start|>user\nUp<|im_end|>"
    assert (tokenizer.eos_token, tokenizer.chat_template) == ("<|im_end|>", TEMPLATE)
    assert tokenizer.declared_end_ids == {len(TOKENS) - 1: "generation_config.json"}
    assert torch.equal(model(torch.tensor([ids])).logits, plain(torch.tensor([ids])).logits)


def test_file_converted_once_per_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_gguf(tmp_path / "m.gguf")
    folder = resolve_policy(PretrainedPolicy(name_or_path=str(tmp_path / "m.gguf")))
    monkeypatch.setattr(conversion, "_convert", lambda *_: pytest.fail("converted again"))
    (tmp_path / "m.gguf").rename(tmp_path / "n.gguf")
    assert resolve_policy(PretrainedPolicy(name_or_path=str(tmp_path / "n.gguf"))) == folder


def test_another_converter_is_another_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    before = PretrainedPolicy(name_or_path=str(tmp_path / "m.gguf")).digest
    monkeypatch.setattr("starpo.ragen.config.model_files.CONVERTER_VERSION", 99)
    assert PretrainedPolicy(name_or_path=str(tmp_path / "m.gguf")).digest != before


def refused(file: Path) -> str:
    with pytest.raises(PolicyError) as error:
        resolve_policy(PretrainedPolicy(name_or_path=str(file)))
    assert not [made for made in (file.parent / "cache").rglob("*") if made.name == "config.json"]
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("share", [0.0001, 0.01, 0.2, 0.6, 0.999])
def test_a_truncated_file_is_one_error(tmp_path: Path, share: float) -> None:
    file = tmp_path / "m.gguf"
    write_gguf(file)
    file.write_bytes(file.read_bytes()[: int(file.stat().st_size * share)])
    assert f"the GGUF file '{file}' cannot be read" in refused(file)


def test_an_unknown_architecture_is_named(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", "strange")
    assert "strange" in refused(tmp_path / "m.gguf")


def test_an_unknown_quantisation_is_named(tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    write_gguf(file)
    content = file.read_bytes()
    at = content.index(b"token_embd.weight") + len("token_embd.weight") + 4 + 2 * 8  # dimensions, then the type
    assert content[at] == 8
    file.write_bytes(content[:at] + bytes([99]) + content[at + 1 :])
    assert "99" in refused(file)


def test_non_gguf_file_is_one_error(tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    (tmp_path / "m.gguf").write_bytes(b"not a model at all, but long enough to be looked at")
    assert "cannot be read" in refused(tmp_path / "m.gguf")


def test_a_missing_reader_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    monkeypatch.setattr(conversion, "find_spec", lambda name: None if name == "gguf" else sys)
    with pytest.raises(MissingPackageError, match=r"needs gguf: pip install 'starpo\[gguf\]'"):
        resolve_policy(PretrainedPolicy(name_or_path=str(tmp_path / "m.gguf")))


@pytest.mark.thorough
def test_smollm2_has_its_packages_sizes(smollm2: str) -> None:
    check_folder(smollm2)
    config = json.loads((Path(smollm2) / "config.json").read_text())
    sizes = config["model_type"], config["num_hidden_layers"], config["hidden_size"], config["vocab_size"]
    assert sizes == ("llama", 30, 576, 49_152)
    model, tokenizer = load_policy(smollm2)
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    inputs = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    answer = model.generate(**inputs, max_new_tokens=12, do_sample=False)[0, inputs["input_ids"].shape[1] :]
    assert "Paris" in tokenizer.decode(answer)
