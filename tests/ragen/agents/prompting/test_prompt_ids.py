"""Prompts have the ids of the chat template's own rendering of what was sent, with tokenizers of several kinds."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from starpo.ragen.agents.prompting.context import ContextBuilder
from starpo.ragen.agents.prompting.shown import message_of
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.core.errors import TemplateError
from starpo.ragen.envs.grammar import Tool, ToolCalls
from tests.ragen.agents.prompting.conftest import Words

TEMPLATES = Path(__file__).parent / "templates"
MARKS = {
    "zephyr": ["<s>", "</s>"],
    "phi3": ["<s>", "</s>", "<|user|>", "<|assistant|>", "<|end|>"],
    "llama2": ["<s>", "</s>"],
    "mistral": ["<s>", "</s>"],
    "llama3": ["<bos>", "<|end_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>"],
}
CHATML = ["<bos>", "<|im_end|>", "<|im_start|>"]
TEXTS = [
    "You are here: P _ G",
    "<think>thought</think>\n\n<answer>Left</answer>",
    "system user assistant [INST] [/INST]",
]
LOOK = Tool("look", "Looks around.", {"type": "object", "properties": {}})


@cache
def tokenizer_of(template: str, kind: str) -> PreTrainedTokenizerFast:
    """A small tokenizer with merges: byte-level as GPT-2's, or with SentencePiece's sign for a space.

    Args:
        template: A file in `templates/`.
        kind: 'bytes'; or the sign is put before a conversation ('first'), before every piece between special tokens
            ('always'), or there by the normaliser ('legacy').
    """
    if kind == "bytes":
        tokenizer = Tokenizer(models.BPE())
        split = pre_tokenizers.Split(Regex(r" ?\p{L}+| ?[^\s\p{L}]+[\n]*|\s*\n+|\s+(?!\S)|\s+"), "isolated")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        )
        tokenizer.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
        tokenizer.train_from_iterator(TEXTS, trainer)
    else:
        letters = sorted(set("".join(TEXTS)) - {"\n", " "} | {"\u2581"})
        vocabulary = [
            "<unk>",
            *(f"<0x{byte:02X}>" for byte in range(256)),
            *letters,
            "\u2581<",
            "\u2581Y",
            "\u2581\u2581",
        ]
        merges = [("\u2581", "<"), ("\u2581", "Y"), ("\u2581", "\u2581")]
        ids = {token: number for number, token in enumerate(vocabulary)}
        tokenizer = Tokenizer(models.BPE(vocab=ids, merges=merges, unk_token="<unk>", byte_fallback=True))
        if kind == "legacy":
            tokenizer.normalizer = normalizers.Sequence(
                [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
            )
        else:
            tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=kind, split=False)
        tokenizer.decoder = decoders.Sequence(
            [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        )
    marks = MARKS.get(template, CHATML)
    made = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=marks[0], eos_token=marks[1], name_or_path=f"example/{template}"
    )
    is_phi = template == "phi3"  # its marks take the white space after them
    made.add_tokens([AddedToken(mark, special=True, normalized=False, rstrip=is_phi) for mark in marks[2:]], True)
    if kind == "bytes":
        made.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in ("<think>", "</think>")])
    made.chat_template = (TEMPLATES / f"{template}.jinja").read_text()
    return made


OBSERVATIONS = ["You are here", " \n\n  P G \n", "\n\nSee <think>this</think>", "\u00e9 \u221a", "P", "G"]
RESPONSES = [
    "<think>thought</think><answer>Left</answer>",
    "<think>\nthought\n</think>\n\n<answer>Left</answer>",
    "<think> two \n </think>\n<answer>  Right</answer>",
    "<think>never closed",
    "<think></think>none",
]
DROPPED = {"earlier_thoughts": "dropped"}


@pytest.mark.ci
@pytest.mark.parametrize(
    ("template", "kind", "settings"),
    [
        ("qwen2.5", "bytes", {}),
        ("hermes_tools", "bytes", {}),
        ("llama3", "bytes", {}),
        ("qwen3", "bytes", DROPPED),
        ("qwen3", "bytes", DROPPED | {"context": "window", "window_turns": 3}),
        ("writes_anew", "bytes", {}),
        ("reads_field", "bytes", {"should_prefill_think": True}),
        ("opens_thought", "bytes", DROPPED | {"should_prefill_think": True}),
        ("strips_lines", "first", DROPPED),
        *[(template, kind, {}) for template in ("zephyr", "phi3", "llama2") for kind in ("first", "always", "legacy")],
        ("mistral", "always", {}),
    ],
)
@pytest.mark.parametrize("has_tools", [False, True])
def test_prompt_ids_match_template_rendering(template, kind, settings, has_tools):
    tokenizer = tokenizer_of(template, kind)
    agent = AgentConfig(prompt="state", should_show_reward=False, **settings)
    contexts = ContextBuilder(tokenizer, agent, 50)
    world = Words()
    world.grammar = ToolCalls((LOOK,)) if has_tools else world.grammar
    pieces, _ = contexts.with_tools((LOOK,) if has_tools else ())
    context, replies = contexts.start(world), []
    for turn, observation in enumerate(OBSERVATIONS):
        prompt = context.observe(observation, actions_left=9, reward=None, had_invalid_action=False)
        users = context.user_texts
        sent: list[dict[str, Any]] = [{"role": "user", "content": users[0]}]
        for reply, text in zip(replies[turn + 1 - len(users) :], users[1:], strict=True):
            sent += [message_of(reply, pieces.shown.has_field), {"role": "user", "content": text}]
        expected = tokenizer.apply_chat_template(
            sent,
            tools=[LOOK.declaration] if has_tools else None,
            add_generation_prompt=True,
            date_string="26 Jul 2024",
        )["input_ids"]
        assert context.token_ids == expected
        if not settings and template != "writes_anew":
            assert prompt.is_context_start == (turn == 0)
        if turn < len(RESPONSES):
            response = RESPONSES[turn].removeprefix("<think>" if pieces.opens_thought else "")
            replies.append(pieces.opened_thought + response)
            context.respond([*contexts.response_ids(response), contexts.stop_token_ids[0]])


@pytest.mark.parametrize("response", RESPONSES)
def test_reasoning_stays_through_tool_results(response):
    """As in Qwen3's template, until the next query; a context goes on where a response stays as it was."""
    contexts = ContextBuilder(tokenizer_of("qwen3", "bytes"), AgentConfig(prompt="state", **DROPPED), 50)
    world = Words()
    world.grammar = ToolCalls((LOOK,))
    context = contexts.start(world)
    starts = []
    for _ in range(2):
        prompt = context.observe("dark", actions_left=9, reward=None, had_invalid_action=False)
        starts.append(prompt.is_context_start)
        context.respond([*contexts.response_ids(response), contexts.stop_token_ids[0]])
    assert starts == [True, response not in (RESPONSES[1], RESPONSES[3])]
    context.observe("light", actions_left=9, reward=None, had_invalid_action=False)
    text = tokenizer_of("qwen3", "bytes").decode(context.token_ids)
    assert text.count("thought") == (2 if "thought" in response else 0)


def test_demonstrated_response_follows_prompt_as_rendered():
    """Without the sign for a space that the tokenizer puts before a text alone."""
    tokenizer = tokenizer_of("zephyr", "always")
    contexts = ContextBuilder(tokenizer, AgentConfig(prompt="state"), 50)
    alone = tokenizer.encode("<answer>Left</answer>", add_special_tokens=False)
    assert tokenizer.convert_ids_to_tokens(alone)[0] == "\u2581<"
    assert tokenizer.convert_ids_to_tokens(contexts.response_ids("<answer>Left</answer>"))[0] == "<"


@pytest.mark.parametrize("earlier_thoughts", ["kept", "dropped"])
def test_unusable_template_is_refused_once(earlier_thoughts):
    with pytest.raises(TemplateError) as error:
        ContextBuilder(tokenizer_of("channels", "bytes"), AgentConfig(earlier_thoughts=earlier_thoughts), 50)
    assert "neither with agent.earlier_thoughts = 'kept' nor with 'dropped'" in str(error.value)
    assert "sent '<think>reasoning probe</think><answer>action probe</answer>'" in str(error.value)
    assert "<|channel|>final<|message|><think>reasoning probe" in str(error.value)


def test_normalised_marks_tokenizer_is_refused():
    """The normaliser puts its sign before the whole conversation, and no mark separates what follows from it."""
    backend = tokenizer_of("zephyr", "legacy").backend_tokenizer
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(backend.to_str().replace('"normalized":false', '"normalized":true'))
    )
    tokenizer.chat_template = tokenizer_of("zephyr", "legacy").chat_template.replace("eos_token", "'</s>'")
    with pytest.raises(TemplateError, match="encodes a conversation otherwise than piece by piece"):
        ContextBuilder(tokenizer, AgentConfig(), 50)
