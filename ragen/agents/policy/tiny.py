"""The embedded policy: a Qwen2 architecture of about half a million parameters with seeded random weights.

It is an ordinary Hugging Face model, so everything that accepts it also accepts `Qwen/Qwen2.5-0.5B-Instruct`.
"""

from collections.abc import Callable
from functools import partial

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from starpo.ragen.agents.policy.tokenizer import make_tokenizer
from starpo.ragen.config.policy import TinyPolicy
from starpo.ragen.core.seeding import derive_seed

__all__ = ["make_model", "make_tokenizer"]

_ROPE_THETA = 10_000.0


def make_model(config: TinyPolicy, tokenizer: PreTrainedTokenizerFast) -> PreTrainedModel:
    """Build the model: float32, tied embeddings, weights a function of `config` and the vocabulary size alone.

    Args:
        config: Sizes and seed.
        tokenizer: Provides the vocabulary size, the end token, the padding token and, for a policy that sees images,
            their tokens.

    Returns:
        The model in evaluation mode. The global random state is unchanged.
    """
    configured: Callable[..., Qwen2Config] = Qwen2Config
    model: Callable[..., PreTrainedModel] = Qwen2ForCausalLM
    tokens = getattr(tokenizer, "image_tokens", None)
    if tokens is not None:
        from starpo.ragen.agents.vision.tiny_vision import TinyVisionConfig, TinyVisionForCausalLM

        configured, model = partial(TinyVisionConfig.seeing, tokens), TinyVisionForCausalLM
    architecture = configured(
        vocab_size=len(tokenizer),
        hidden_size=config.hidden_size,
        num_hidden_layers=config.num_layers,
        num_attention_heads=config.num_heads,
        num_key_value_heads=config.num_kv_heads,
        intermediate_size=config.intermediate_size,
        max_position_embeddings=config.max_positions,
        rope_parameters={"rope_type": "default", "rope_theta": _ROPE_THETA},
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )
    # transformers draws weights from torch's global generator and accepts no other; fork_rng restores its state.
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(derive_seed(config.seed, "weights"))
        return model(architecture).eval()
