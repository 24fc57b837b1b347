import pytest
import torch

from starpo.flows.presets import preset
from starpo.ragen.agents.policy.tiny import make_model
from starpo.ragen.agents.policy.tokenizer import make_tokenizer
from starpo.ragen.config.policy import TinyPolicy
from starpo.ragen.core.errors import ConfigError

TOKENIZER = make_tokenizer()
SMALL = {"hidden_size": 32, "num_layers": 2, "num_heads": 4, "num_kv_heads": 2, "intermediate_size": 48}


def test_end_and_padding_from_tokenizer() -> None:
    config = make_model(TinyPolicy(**SMALL), TOKENIZER).config
    assert (config.eos_token_id, config.pad_token_id) == (TOKENIZER.eos_token_id, TOKENIZER.pad_token_id)
    assert config.vocab_size == len(TOKENIZER)


def test_weights_depend_on_seed_alone() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = make_model(TinyPolicy(**SMALL, seed=3), TOKENIZER).state_dict()
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    again = make_model(TinyPolicy(**SMALL, seed=3), TOKENIZER).state_dict()
    other = make_model(TinyPolicy(**SMALL, seed=4), TOKENIZER).state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["model.embed_tokens.weight"], other["model.embed_tokens.weight"])


@pytest.mark.parametrize(
    ("sizes", "named"),
    [
        ({"hidden_size": 32, "num_heads": 3, "num_kv_heads": 1}, "num_heads = 3 .* a multiple of 6"),
        ({"hidden_size": 24, "num_heads": 8, "num_kv_heads": 1}, "hidden_size = 24"),  # an odd head width, 3
        ({"hidden_size": 32, "num_heads": 4, "num_kv_heads": 3}, "num_kv_heads = 3"),
    ],
)
def test_mismatched_sizes_refused_as_settings(sizes: dict[str, int], named: str) -> None:
    with pytest.raises(ConfigError, match=f"policy .*{named}"):
        preset("smoke", {f"policy.{name}": size for name, size in sizes.items()})
