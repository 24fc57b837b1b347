from transformers import Qwen2Config, Qwen2ForCausalLM

from starpo.ragen.sizing.architecture import Architecture


def model_of(architecture: Architecture) -> Qwen2ForCausalLM:
    """Build a model of these sizes."""
    config = Qwen2Config(
        vocab_size=architecture.vocab_size,
        hidden_size=architecture.hidden_size,
        num_hidden_layers=architecture.num_layers,
        num_attention_heads=architecture.num_heads,
        num_key_value_heads=architecture.num_kv_heads,
        intermediate_size=architecture.intermediate_size,
        tie_word_embeddings=architecture.is_tied,
    )
    return Qwen2ForCausalLM(config)
