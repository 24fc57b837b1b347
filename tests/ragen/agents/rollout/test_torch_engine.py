"""The torch engine: exact log-probs over many turns, the same tokens in any batch, the same bytes per shard."""

import hashlib
import json
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    GPTNeoConfig,
    GPTNeoForCausalLM,
    MistralConfig,
    MistralForCausalLM,
)

from starpo.ragen.agents.policy.tokenizer import make_tokenizer
from starpo.ragen.agents.rollout.engine import Request
from starpo.ragen.agents.rollout.torch.engine import TorchEngine
from starpo.ragen.agents.rollout.torch.fused_decoder import FusedDecoder
from starpo.ragen.agents.rollout.torch.module_decoder import ModuleDecoder
from starpo.ragen.config.rollout import SamplingConfig
from starpo.ragen.core.errors import EngineError, PolicyError
from starpo.ragen.core.seeding import token_uniforms
from tests.ragen.agents.rollout.policies import (
    MIXTURES,
    MODELS,
    NUM_IDS,
    ROTARY,
    SAMPLING,
    STOPS,
    CountingDecoder,
    save_policy,
)


@pytest.fixture(scope="module")
def policies(tmp_path_factory):
    """Folder and reference model of each architecture."""
    folders = {name: tmp_path_factory.mktemp(name) for name in MODELS}
    return {name: (str(folder), save_policy(folder, name)) for name, folder in folders.items()}


@pytest.fixture(scope="module")
def engines(policies):
    engines = {}
    for name, (folder, _) in policies.items():
        engines[name] = TorchEngine(device="cpu")
        engines[name].load(folder, name)
    return engines


def conversation(context, num_sequences=6, num_turns=4, only=None):
    """Requests of each turn, given the contexts so far: mixed lengths, sequences that end, one that starts afresh."""
    rng = np.random.default_rng(0)
    texts = rng.integers(20, NUM_IDS, (num_turns, num_sequences, 12)).tolist()
    lengths = rng.integers(1, 12, (num_turns, num_sequences))
    texts[0] = [texts[0][number // 3] for number in range(num_sequences)]  # groups of three share their first prompt
    lengths[0] = lengths[0, 0]

    def requests(turn, contexts):
        turn_requests = []
        for number in range(num_sequences) if only is None else only:
            if turn > 1 and number % 4 == 3:
                continue
            starts_anew = context == "window" or (turn == 2 and number == 2)
            prompt = [] if starts_anew else contexts.get(number, [])
            prompt = prompt + texts[turn][number][: lengths[turn, number]]
            turn_requests.append(Request(f"s{number}", prompt, token_uniforms(number, turn, 9), number))
        return turn_requests

    return requests, num_turns


def play(session, context, **settings):
    """All (request, response) pairs of a conversation."""
    requests, num_turns = conversation(context, **settings)
    contexts, pairs = {}, []
    for turn in range(num_turns):
        turn_requests = requests(turn, contexts)
        responses = session.generate(turn_requests)
        for request, response in zip(turn_requests, responses, strict=True):
            contexts[int(request.sequence_id[1:])] = [*request.prompt_ids, *response.token_ids]
            pairs.append((request, response))
    return pairs


def reference_logprobs(model, request, response, sampling):
    """Log-probs of a response from one full forward pass, under the sampling distribution by its definition."""
    with torch.inference_mode():
        ids = torch.tensor([[*request.prompt_ids, *response.token_ids]])
        logits = model(input_ids=ids).logits[0, len(request.prompt_ids) - 1 : -1].double()
    probs = torch.softmax(logits / (sampling.temperature or 1.0), -1)
    if sampling.temperature and sampling.top_p < 1:
        for row in probs:
            order = row.argsort(descending=True)
            kept = int((row[order].cumsum(0) < sampling.top_p).sum()) + 1
            row[order[kept:]] = 0.0
        probs /= probs.sum(-1, keepdim=True)
    return probs[range(len(response.token_ids)), response.token_ids].log().numpy()


@pytest.mark.ci
@pytest.mark.parametrize("context", ["window", "full"])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    "sampling",
    [SAMPLING, SAMPLING.model_copy(update={"temperature": 0.0}), SamplingConfig(max_response_tokens=9)],
    ids=["top_p", "greedy", "plain"],
)
def test_logprobs_equal_a_full_forward_pass(engines, policies, name, context, sampling):
    pairs = play(engines[name].session(sampling, STOPS), context)
    assert len(pairs) == 22  # 6 sequences in 4 turns; one of them leaves after 2
    for request, response in pairs:
        expected = reference_logprobs(policies[name][1], request, response, sampling)
        np.testing.assert_allclose(response.logprobs, expected, atol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_responses_end_at_stop_or_limit(engines, name):
    for _, response in play(engines[name].session(SAMPLING, STOPS), "window"):
        assert not set(response.token_ids[:-1]) & set(STOPS)
        assert (response.finish_reason == "stop") == (response.token_ids[-1] in STOPS)
        assert len(response.token_ids) == 9 or response.finish_reason == "stop"
        assert len(response.logprobs) == len(response.token_ids)


@pytest.mark.parametrize("context", ["window", "full"])
def test_batch_composition_keeps_tokens(engines, context):
    together = play(engines["qwen2"].session(SAMPLING, STOPS), context)
    for number in range(6):
        alone = play(engines["qwen2"].session(SAMPLING, STOPS), context, only=[number])
        same = [pair for pair in together if pair[0].sequence_id == f"s{number}"]
        for (_, one), (_, other) in zip(alone, same, strict=True):
            assert one.token_ids == other.token_ids
            np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-5)


@pytest.mark.ci
@pytest.mark.parametrize("name", ["qwen2", "llama"])
def test_the_fused_pass_equals_transformers_own(policies, name):
    folder, model = policies[name]
    fused, plain = TorchEngine(device="cpu"), TorchEngine(device="cpu")
    fused.load(folder, "a")
    plain.load(folder, "a")
    assert isinstance(fused._decoder, FusedDecoder)
    plain._decoder = ModuleDecoder(model, torch.device("cpu"), torch.float32)
    for (_, one), (_, other) in zip(
        play(fused.session(SAMPLING, STOPS), "full"), play(plain.session(SAMPLING, STOPS), "full"), strict=True
    ):
        assert one.token_ids == other.token_ids
        np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-5)


def test_no_requests_give_no_responses(engines):
    assert engines["qwen2"].session(SAMPLING, STOPS).generate([]) == []


def digest_of_a_shard(folder, dtype):
    engine = TorchEngine(num_threads=1, device="cpu", dtype=dtype)
    engine.load(folder, "a")
    digest = hashlib.sha256()
    for context in ("window", "full"):
        for _, response in play(engine.session(SAMPLING, STOPS), context):
            digest.update(np.array(response.token_ids).tobytes() + np.array(response.logprobs).tobytes())
    return digest.hexdigest()


@pytest.mark.ci
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_same_shard_same_bytes_across_processes(policies, dtype):
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from tests.ragen.agents.rollout import test_torch_engine; "
        "print(test_torch_engine.digest_of_a_shard(*sys.argv[2:]))"
    )
    folder = policies["qwen2"][0]
    process = subprocess.run(
        [sys.executable, "-c", code, str(Path(__file__).parents[4]), folder, dtype],
        capture_output=True,
        text=True,
        check=True,
    )
    assert process.stdout.strip() == digest_of_a_shard(folder, dtype)


def test_concurrent_sessions_give_separate_results(engines):
    engine = engines["qwen2"]
    alone = [play(engine.session(SAMPLING, STOPS), context) for context in ("window", "full")]
    together = [None, None]

    def run(index, context):
        together[index] = play(engine.session(SAMPLING, STOPS), context)

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(("window", "full"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [[response for _, response in pairs] for pairs in together] == [
        [response for _, response in pairs] for pairs in alone
    ]


def test_threads_set_and_restored(policies):
    engine = TorchEngine(num_threads=2, device="cpu")
    engine.load(policies["qwen2"][0], "a")
    before, num_threads = torch.get_num_threads(), []
    decoder = engine._decoder
    engine._decoder = CountingDecoder(decoder)
    engine._decoder.prefill = lambda *args: num_threads.append(torch.get_num_threads()) or decoder.prefill(*args)
    engine.session(SAMPLING, STOPS).generate([Request("s", [30], token_uniforms(0, 0, 9), 0)])
    assert (num_threads, torch.get_num_threads()) == ([2], before)


def test_reload_keeps_sessions_new_weights_end(policies, tmp_path):
    engine = TorchEngine(device="cpu")
    engine.load(policies["qwen2"][0], "first")
    engine.load("/nowhere", "first")
    decoder, stale = engine._decoder, engine.session(SAMPLING, STOPS)
    save_policy(tmp_path, "qwen2", seed=5)
    engine.load(str(tmp_path), "second")
    assert engine._decoder is decoder
    with pytest.raises(EngineError, match="began at checkpoint 'first' and the engine is at 'second'"):
        stale.generate([Request("s", [30], token_uniforms(0, 0, 9), 0)])


@pytest.mark.ci
@pytest.mark.parametrize("name", [*MODELS, *MIXTURES])
def test_weights_are_reloaded_in_every_architecture(tmp_path, name):
    engine = TorchEngine(device="cpu")
    for seed in (1, 2):
        folder = tmp_path / str(seed)
        model = save_policy(folder, name, seed)
        engine.load(str(folder), str(seed))
        request = Request("s", [30, 31], token_uniforms(0, 0, 9), 0)
        (response,) = engine.session(SAMPLING, STOPS).generate([request])
        np.testing.assert_allclose(response.logprobs, reference_logprobs(model, request, response, SAMPLING), atol=1e-4)


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors", "tokenizer.json"])
@pytest.mark.parametrize("is_first", [True, False])
def test_an_incomplete_folder_is_named(policies, tmp_path, missing, is_first):
    engine = TorchEngine(device="cpu")
    if not is_first:
        engine.load(policies["qwen2"][0], "a")
    save_policy(tmp_path)
    (tmp_path / missing).unlink()
    with pytest.raises(PolicyError, match=missing):
        engine.load(str(tmp_path), "b")
    with pytest.raises(EngineError, match="no checkpoint is loaded"):
        engine.session(SAMPLING, STOPS)


def test_weights_of_another_shape_are_refused(policies, tmp_path):
    engine = TorchEngine(device="cpu")
    engine.load(policies["qwen2"][0], "a")
    save_policy(tmp_path, "llama")
    config = json.loads((Path(policies["qwen2"][0]) / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": False}))
    with pytest.raises(PolicyError, match="do not belong together"):
        engine.load(str(tmp_path), "b")


def test_sliding_windows_are_refused(tmp_path):
    config = MistralConfig(vocab_size=500, **ROTARY, sliding_window=8)
    MistralForCausalLM(config).save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(PolicyError, match="'mistral' does not keep keys and values of every token"):
        TorchEngine(device="cpu").load(str(tmp_path), "a")


def gpt_neo(*kinds, window_size):
    config = GPTNeoConfig(
        vocab_size=400, hidden_size=32, num_layers=2, num_heads=4, attention_types=[[kinds, 2 // len(kinds)]],
        window_size=window_size, max_position_embeddings=1024,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return GPTNeoForCausalLM(config)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("window_size", [8, 256])
def test_cache_position_window_is_refused(window_size, dtype):
    """GPT-Neo masks its windows itself, by the slots of the keys; its variants without a window are correct."""
    model = gpt_neo("global", "local", window_size=window_size)
    with pytest.raises(PolicyError, match=r"'gpt_neo' gives other logits .* use another engine or another model"):
        ModuleDecoder(model, torch.device("cpu"), dtype)
    ModuleDecoder(gpt_neo("global", window_size=window_size), torch.device("cpu"), dtype)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("bloom", {"n_layer": 1, "n_head": 4}),
        ("mpt", {"d_model": 32, "n_layers": 1, "n_heads": 4}),
        ("mamba", {"num_hidden_layers": 1, "state_size": 8}),
        ("falcon", {"num_hidden_layers": 1, "num_attention_heads": 4, "alibi": True}),
    ],
)
def test_unsupported_cache_architectures_are_named(name, settings):
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(name, vocab_size=400, hidden_size=32, **settings))
    with pytest.raises(PolicyError, match=f"'{name}' .*use another engine or another model"):
        ModuleDecoder(model, torch.device("cpu"), torch.float32)


@pytest.mark.parametrize(
    ("requests", "message"),
    [
        ([("s", [])], "prompt of sequence 's' is empty"),
        ([("s", [30]), ("s", [31])], "same sequence_id"),
        ([("s", [100_000])], "but the policy has 0 to"),
        ([("s", [-1])], "but the policy has 0 to"),
        ([("s", [30] * 250)], "exceed the policy's maximum context, 256"),
    ],
)
def test_unanswerable_requests_are_named(engines, requests, message):
    given = [Request(name, ids, token_uniforms(0, 0, 9), 0) for name, ids in requests]
    with pytest.raises(EngineError, match=message):
        engines["qwen2"].session(SAMPLING, STOPS).generate(given)


def test_too_few_uniforms_are_named(engines):
    with pytest.raises(EngineError, match="has 3 uniforms, expected at least 9"):
        engines["qwen2"].session(SAMPLING, STOPS).generate([Request("s", [30], token_uniforms(0, 0, 3), 0)])


def test_a_diverged_policy_is_named(policies):
    engine = TorchEngine(device="cpu")
    engine.load(policies["qwen2"][0], "a")
    with torch.inference_mode():
        engine._decoder._norm.fill_(torch.nan)
    with pytest.raises(EngineError, match="sequence 's': a log-prob is not finite"):
        engine.session(SAMPLING, STOPS).generate([Request("s", [30], token_uniforms(0, 0, 9), 0)])


@pytest.mark.parametrize(("dtype", "nats"), [("bfloat16", 0.3), ("float16", 0.04)])
def test_half_precision_follows_float32(policies, dtype, nats):
    folder, model = policies["qwen2"]
    engine = TorchEngine(device="cpu", dtype=dtype)
    engine.load(folder, "a")
    sampling = SamplingConfig(max_response_tokens=9)
    gaps = [
        np.abs(response.logprobs - reference_logprobs(model, request, response, sampling)).mean()
        for request, response in play(engine.session(sampling, STOPS), "full")
    ]
    assert np.mean(gaps) < nats


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_gpu_repeats_same_bytes(policies, dtype):
    played = []
    for _ in range(2):
        engine = TorchEngine(dtype=dtype)
        assert engine.is_deterministic
        engine.load(policies["qwen2"][0], "a")
        played.append([response for _, response in play(engine.session(SAMPLING, STOPS), "full")])
    assert played[0] == played[1]


@pytest.mark.gpu
def test_the_gpu_follows_the_cpu(policies):
    folder, model = policies["qwen2"]
    engine = TorchEngine(device="cuda", dtype="float32")
    engine.load(folder, "a")
    for request, response in play(engine.session(SAMPLING, STOPS), "full"):
        expected = reference_logprobs(model, request, response, SAMPLING)
        np.testing.assert_allclose(response.logprobs, expected, atol=1e-2)
