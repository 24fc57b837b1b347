"""Log-probs at response positions equal those of a plain full forward pass."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import AutoConfig, AutoModelForCausalLM

from starpo.ragen.agents.policy.load import load_policy
from starpo.ragen.config.device import Device
from starpo.ragen.core.errors import PolicyError
from starpo.ragen.learning.learners.data.batches import micro_batches
from starpo.ragen.learning.learners.data.prefix_rows import prefix_rows
from starpo.ragen.learning.learners.data.tokens import ResponseTokens
from starpo.ragen.learning.learners.data.trajectories import Segment, Trajectory
from starpo.ragen.learning.learners.micro_batch_runner import MicroBatchRunner
from starpo.ragen.learning.learners.models import scoring
from starpo.ragen.learning.learners.models.critic import Critic, evaluate
from starpo.ragen.learning.learners.models.scoring import (
    ResponseScores,
    check_output_layer,
    row_tokens,
    score,
)
from tests.ragen.agents.rollout.policies import save_policy

PLAIN = MicroBatchRunner(Device(), 1, "float32")


@pytest.fixture
def policy(policy_folder):
    return load_policy(policy_folder)[0]


def plain_logprobs(policy, tokens: ResponseTokens, temperature: float) -> torch.Tensor:
    """Log-probs from one segment at a time, with all logits and no padding."""
    parts = []
    for segment in tokens.segments:
        token_ids = torch.from_numpy(segment.token_ids)
        with torch.no_grad():
            logits = policy(input_ids=token_ids[None]).logits[0] / temperature
        logprobs = torch.log_softmax(logits[:-1], -1).gather(1, token_ids[1:, None])[:, 0]
        parts.append(logprobs[torch.from_numpy(segment.response_mask[1:])])
    return torch.cat(parts)


@pytest.mark.ci
@pytest.mark.parametrize("context_mode", ["full", "window"])
@pytest.mark.parametrize("temperature", [1.0, 0.5])
@pytest.mark.parametrize("budget", [16, 60, 10_000])
@pytest.mark.parametrize("row_tokens", [0, 20, 500])
def test_scores_match_full_forward(policy, make_trajectories, context_mode, temperature, budget, row_tokens):
    tokens = ResponseTokens(make_trajectories(6, context=context_mode))
    batches = micro_batches(tokens, np.arange(len(tokens.segments)), budget, row_tokens=row_tokens)
    scores = score(ResponseScores(policy), batches, len(tokens), temperature, PLAIN)
    torch.testing.assert_close(scores.logprobs_N, plain_logprobs(policy, tokens, temperature), atol=2e-6, rtol=0)
    assert ((scores.entropy_N > 0) & (scores.entropy_N <= math.log(policy.config.vocab_size))).all()


@pytest.mark.parametrize("row_tokens", [0, 30])
def test_padding_is_never_seen(policy, make_trajectories, row_tokens):
    tokens = ResponseTokens(make_trajectories(4, context="full"))
    (batch,) = micro_batches(tokens, np.arange(4), 10_000, row_tokens=row_tokens)
    rows = prefix_rows([s.token_ids for s in tokens.segments], np.arange(4), row_tokens)
    lengths = sorted(map(len, rows), reverse=True)
    is_padding_ST = torch.arange(lengths[0])[None] >= torch.tensor(lengths)[:, None]
    assert is_padding_ST.any()
    poisoned = dataclasses.replace(batch, token_ids_ST=batch.token_ids_ST.masked_fill(is_padding_ST, 77))
    one, other = (score(ResponseScores(policy), [b], len(tokens), 1.0, PLAIN).logprobs_N for b in (batch, poisoned))
    assert torch.equal(one, other)


def test_temperature_0_stands_for_1(policy, make_trajectories):
    tokens = ResponseTokens(make_trajectories(2))
    batches = micro_batches(tokens, np.arange(len(tokens.segments)), 1000)
    greedy, plain = (score(ResponseScores(policy), batches, len(tokens), t, PLAIN).logprobs_N for t in (0.0, 1.0))
    assert torch.equal(greedy, plain)


@pytest.mark.parametrize(("dtype", "nats"), [("bfloat16", 0.05), ("float16", 0.0125)])
def test_half_precision_is_close(policy, make_trajectories, dtype, nats):
    tokens = ResponseTokens(make_trajectories(2))
    batches = micro_batches(tokens, np.arange(len(tokens.segments)), 1000)
    exact = score(ResponseScores(policy), batches, len(tokens), 1.0, PLAIN).logprobs_N
    coarse = score(ResponseScores(policy), batches, len(tokens), 1.0, MicroBatchRunner(Device(), 1, dtype)).logprobs_N
    assert not torch.equal(coarse, exact)
    torch.testing.assert_close(coarse, exact, atol=nats, rtol=0)


def test_new_critic_is_zero_valued_copy(policy, make_trajectories):
    before = torch.get_rng_state()
    critic = Critic.from_policy(policy)
    assert torch.equal(torch.get_rng_state(), before)
    tokens = ResponseTokens(make_trajectories(2))
    batches = micro_batches(tokens, np.arange(len(tokens.segments)), 1000)
    assert not evaluate(critic, batches, len(tokens), PLAIN).any()
    assert not {id(p) for p in critic.parameters()} & {id(p) for p in policy.parameters()}


def test_logit_capping_model_is_rejected(policy):
    check_output_layer(policy)
    plain_forward = policy.forward

    def capped(**inputs):
        output = plain_forward(**inputs)
        output.logits = torch.tanh(output.logits)
        return output

    policy.forward = capped
    policy.lm_head.weight.data.mul_(30)  # weights this large reach the cap
    with pytest.raises(PolicyError, match="Qwen2ForCausalLM computes its logits"):
        check_output_layer(policy)


@pytest.mark.parametrize("name", ["qwen2", "llama", "gpt2"])
def test_every_architecture_shares_prefixes(name, tmp_path, make_trajectories):
    model = save_policy(tmp_path, name)
    assert row_tokens(model) == 32
    tokens = ResponseTokens(make_trajectories(6))
    batches = micro_batches(tokens, np.arange(len(tokens.segments)), 10_000, row_tokens=32)
    assert any(batch.end_ST is not None for batch in batches)
    scores = score(ResponseScores(model), batches, len(tokens), 1.0, PLAIN)
    torch.testing.assert_close(scores.logprobs_N, plain_logprobs(model, tokens, 1.0), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("num_layers", [2, 12])
def test_bfloat16_shares_prefixes_despite_kernel_rounding(monkeypatch, num_layers):
    """As on a GPU, where attention with a mask is another kernel than causal attention."""
    plain = torch.nn.functional.scaled_dot_product_attention

    def attention(*args, attn_mask=None, **options):
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION if attn_mask is None else SDPBackend.MATH):
            return plain(*args, attn_mask=attn_mask, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", attention)
    model = random_model("qwen2", **SIZES | {"num_hidden_layers": num_layers}).bfloat16()
    assert row_tokens(model) == 64
    model.set_attn_implementation("eager")  # adds a boolean mask to its scores
    assert row_tokens(model) == 0


@pytest.mark.parametrize("attention", ["eager", "refused"])
def test_maskless_model_does_not_share_prefixes(policy, attention, monkeypatch):
    assert row_tokens(policy) == 16
    if attention == "eager":
        policy.set_attn_implementation("eager")  # adds a boolean mask to its scores
    else:
        forward = policy.base_model.forward

        def refusing(**inputs):
            if inputs.get("attention_mask") is not None:
                raise ValueError("masks are not for this kernel")
            return forward(**inputs)

        monkeypatch.setattr(policy.base_model, "forward", refusing)
    assert row_tokens(policy) == 0


SIZES = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48}


def random_model(name, **settings):
    common = {"vocab_size": 100, "hidden_size": 64, "max_position_embeddings": 64, "pad_token_id": 0}
    config = AutoConfig.for_model(name, **common, bos_token_id=1, eos_token_id=1, **settings)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config).eval()
    for parameter in model.parameters():
        if parameter.ndim == 2:  # the usual small weights attend almost uniformly
            parameter.data.mul_(4)
    return model


def long_trajectory(seed: int) -> Trajectory:
    """Trajectory of one segment of 40 tokens: 30 of a prompt, the same for all seeds, and 10 of a response."""
    prompt, response = (np.random.default_rng(s).integers(2, 100, size) for s, size in ((0, 30), (seed, 10)))
    mask = np.arange(40) >= 30
    turns, kinds = np.where(mask, 0, -1), mask.astype(np.int8)
    segment = Segment(np.concatenate([prompt, response]), mask, np.zeros(40, np.float32), turns, kinds)
    one = np.ones(1)
    return Trajectory(f"t{seed}", "g", (segment,), one, 1.0, 1.0, np.zeros(1, np.int64), np.zeros(1, bool), one)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("mistral", SIZES | {"sliding_window": 16}),
        ("phi3", SIZES | {"sliding_window": 16}),
        ("gemma3_text", SIZES | {"sliding_window": 16, "layer_types": ["sliding_attention", "full_attention"]}),
    ],
)
def test_windowed_layers_match_plain_forward(name, settings):
    model, tokens = random_model(name, **settings), ResponseTokens([long_trajectory(seed) for seed in (1, 2, 3)])
    batches = micro_batches(tokens, np.arange(3), 10_000, row_tokens=row_tokens(model))
    scores = score(ResponseScores(model), batches, len(tokens), 1.0, PLAIN)
    torch.testing.assert_close(scores.logprobs_N, plain_logprobs(model, tokens, 1.0), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("mistral", SIZES | {"sliding_window": None}),
        ("phi3", SIZES | {"sliding_window": 64}),  # as wide as the longest context
        ("qwen2", SIZES | {"use_sliding_window": False, "sliding_window": 16}),
    ],
)
def test_wide_windows_keep_prefix_sharing(name, settings):
    assert row_tokens(random_model(name, **settings)) == 64


@pytest.mark.ci
@pytest.mark.parametrize("context_mode", ["full", "window"])
@pytest.mark.parametrize("row_tokens", [0, 20, 500])
@pytest.mark.parametrize("num_at_a_time", [1, 7, 10_000])
def test_shared_prefix_gradients_match_single_segments(
    tmp_path, make_trajectories, context_mode, row_tokens, num_at_a_time, monkeypatch
):
    """For GPT-2, because Qwen2 and Llama compute their norms in float32."""
    tokens = ResponseTokens(make_trajectories(6, context=context_mode))
    policy, segments = save_policy(tmp_path, "gpt2").double(), np.arange(len(tokens.segments))
    weights_N = torch.randn(len(tokens), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    scores = ResponseScores(policy)

    def gradient(batches):
        policy.zero_grad()
        for batch in batches:
            logprobs_M, entropy_M = scores(batch, 1.0, ("logprob", "entropy"))
            (weights_N[batch.token_M] * (logprobs_M + entropy_M)).sum().backward()
        return torch.cat([parameter.grad.flatten() for parameter in policy.parameters()])

    alone = gradient([batch for index in segments for batch in micro_batches(tokens, segments[index : index + 1], 1)])
    monkeypatch.setattr(scoring, "_LOGITS_AT_A_TIME", num_at_a_time * policy.config.vocab_size)
    together = gradient(micro_batches(tokens, segments, 10_000, row_tokens=row_tokens))
    torch.testing.assert_close(together, alone, atol=1e-12, rtol=1e-9)
    assert alone.norm() > 0.1


@pytest.mark.parametrize(("num_at_a_time", "is_kept"), [(10_000, True), (7, False)])
def test_large_batch_logits_are_not_saved(policy, make_trajectories, num_at_a_time, is_kept, monkeypatch):
    vocab_size = policy.config.vocab_size
    monkeypatch.setattr(scoring, "_LOGITS_AT_A_TIME", num_at_a_time * vocab_size)
    tokens = ResponseTokens(make_trajectories(6))
    (batch,) = micro_batches(tokens, np.arange(len(tokens.segments)), 10_000)
    kept = set()

    def keep(tensor):
        kept.add(tuple(tensor.shape))
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        logprobs_M, entropy_M = ResponseScores(policy)(batch, 1.0, ("logprob", "entropy"))
    assert ((len(batch.predictor_P), vocab_size) in kept) == is_kept
    assert not any(shape[-1:] == (vocab_size,) for shape in kept) or is_kept
    assert len(logprobs_M) == len(entropy_M) == len(tokens)
