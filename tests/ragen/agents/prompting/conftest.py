"""Tokenizers with the chat templates in `templates/`, and a stand-in environment with only rules and actions."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from starpo.ragen.envs.grammar import Grammar, Names

_TEMPLATES = Path(__file__).parent / "templates"
_SPECIALS = {
    "llama3": ["<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>"],
    "gemma": ["<end_of_turn>", "<start_of_turn>"],
    "mistral": [],
}
_END_TOKENS = {"llama3": "<|end_of_text|>", "gemma": "<eos>", "mistral": "</s>"}


def tokenizer_of(template: str | None) -> PreTrainedTokenizerFast:
    """Make a tokenizer with one token per byte and the special tokens that the template uses."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    bytewise = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(alphabet)}, merges=[]))
    bytewise.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    bytewise.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bytewise,
        name_or_path=f"example/{template}",
        bos_token="<bos>",
        eos_token=_END_TOKENS.get(template or "", "<|im_end|>"),
        additional_special_tokens=_SPECIALS.get(template or "", ["<|im_start|>"]),
    )
    if template is not None:
        tokenizer.chat_template = (_TEMPLATES / f"{template}.jinja").read_text()
    return tokenizer


@pytest.fixture(scope="session")
def make_tokenizer() -> Callable[[str | None], PreTrainedTokenizerFast]:
    """`make_tokenizer("qwen2.5")`: a tokenizer with that template."""
    return tokenizer_of


class Words:
    """Stand-in for an environment: contexts use only its rules and its grammar."""

    grammar: Grammar = Names(("Left", "Right"))

    def rules(self) -> str:
        return "Walk to the goal.\nP = player, G = goal."


@pytest.fixture(scope="session")
def words() -> Words:
    """Stand-in environment."""
    return Words()
