"""Small policies of several architectures with random weights, and a decoder that counts the tokens it reads."""

import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from starpo.ragen.agents.policy.tokenizer import make_tokenizer
from starpo.ragen.config.rollout import SamplingConfig

NUM_IDS = 40
"""Prompts and stop tokens use the first ids, so that random weights sample a stop token now and then."""
STOPS = tuple(range(20))
SAMPLING = SamplingConfig(temperature=0.8, top_p=0.95, max_response_tokens=9)
SIZES = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "max_position_embeddings": 256}
ROTARY = SIZES | {"num_key_value_heads": 2, "intermediate_size": 48}
MODELS = {
    "qwen2": lambda v: Qwen2ForCausalLM(Qwen2Config(vocab_size=v, **ROTARY, tie_word_embeddings=True)),
    "llama": lambda v: LlamaForCausalLM(LlamaConfig(vocab_size=v, **ROTARY, tie_word_embeddings=False)),
    "gpt2": lambda v: GPT2LMHeadModel(GPT2Config(vocab_size=v, n_embd=32, n_layer=2, n_head=4, n_positions=256)),
}
MIXTURES = {
    "qwen3_moe": lambda v: Qwen3MoeForCausalLM(
        Qwen3MoeConfig(
            vocab_size=v, **ROTARY, head_dim=8, moe_intermediate_size=16, num_experts=4, num_experts_per_tok=2
        )
    ),
    "mixtral": lambda v: MixtralForCausalLM(MixtralConfig(vocab_size=v, **ROTARY, num_local_experts=4)),
}
"""Mixtures of experts, which are fused in memory and saved one by one."""


def save_policy(folder, name="qwen2", seed=0):
    tokenizer = make_tokenizer()
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        model = (MODELS | MIXTURES)[name](len(tokenizer)).eval()
        for parameter in model.parameters():  # the usual small weights give a flat distribution, which hides errors
            torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model


class CountingDecoder:
    """Decoder that counts the tokens of its prefills and the rows of its steps."""

    def __init__(self, decoder):
        self.decoder, self.prefilled, self.stepped = decoder, [], []

    def __getattr__(self, name):
        return getattr(self.decoder, name)

    def prefill(self, tree, *args):
        self.prefilled.append(len(tree.tokens))
        return self.decoder.prefill(tree, *args)

    def step(self, tokens, *args):
        self.stepped.append(len(tokens))
        return self.decoder.step(tokens, *args)
