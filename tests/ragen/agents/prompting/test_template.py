"""Pieces of chat templates: correct for append-only templates; others are rejected with a clear message."""

import pytest

from starpo.ragen.agents.policy.tokenizer import CHAT_TEMPLATE
from starpo.ragen.agents.prompting.template import ChatPieces, derive_pieces
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.core.errors import TemplateError

APPEND_ONLY = ["qwen2.5", "llama3", "gemma", "mistral"]


def text_of(tokenizer, pieces: ChatPieces) -> list[str]:
    ids = (pieces.opening_ids, pieces.generation_ids, pieces.continuation_ids, pieces.stop_token_ids)
    return [tokenizer.decode(list(piece)) for piece in ids]


def test_llama_stop_tokens_and_fixed_date(make_tokenizer):
    tokenizer = make_tokenizer("llama3")
    opening, generation, continuation, stops = text_of(tokenizer, derive_pieces(tokenizer, AgentConfig()))
    assert opening.startswith("<bos><|start_header_id|>system<|end_header_id|>")
    assert "Today Date: 26 Jul 2024" in opening  # not the current date: prompts must not change overnight
    assert generation == "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
    assert continuation == "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n"
    assert stops == "<|eot_id|><|end_of_text|>"


def test_template_date_is_fixed(make_tokenizer):
    """The templates of SmolLM3, Granite, Mistral and gpt-oss ask for it, whatever their arguments."""
    tokenizer = make_tokenizer("qwen2.5")
    template = "<|im_start|>system\nToday is {{ strftime_now('%Y-%m-%d') }}.<|im_end|>\n" + CHAT_TEMPLATE
    opening, *_ = text_of(tokenizer, derive_pieces(tokenizer, AgentConfig(chat_template=template)))
    assert "Today is 2024-07-26." in opening


@pytest.mark.parametrize("name", APPEND_ONLY)
@pytest.mark.parametrize("num_turns", [1, 2, 5])
def test_pieces_rebuild_the_template_own_rendering(make_tokenizer, name, num_turns):
    tokenizer = make_tokenizer(name)
    pieces = derive_pieces(tokenizer, AgentConfig())
    lead = " " if name == "mistral" else ""
    messages, ids = [], list(pieces.opening_ids)
    for turn in range(num_turns):
        if turn:
            messages.append({"role": "assistant", "content": f"reply {turn}"})
            ids += tokenizer.encode(f"{lead}reply {turn}", add_special_tokens=False)
            ids += pieces.continuation_ids
        messages.append({"role": "user", "content": f"board {turn}"})
        ids += [*tokenizer.encode(f"board {turn}", add_special_tokens=False), *pieces.generation_ids]
    rendering = tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True, date_string="26 Jul 2024"
    )
    assert tokenizer.decode(ids) == rendering


@pytest.mark.parametrize(
    ("response", "is_ended"), [("Up<|im_end|>", True), ("Up", False), ("", False), ("<|im_end|>Up", False)]
)
def test_end_token_appended_if_not_sampled(make_tokenizer, response, is_ended):
    tokenizer = make_tokenizer("qwen2.5")
    after = derive_pieces(tokenizer, AgentConfig()).after_response(tokenizer.encode(response, add_special_tokens=False))
    expected = "\n<|im_start|>user\n" if is_ended else "<|im_end|>\n<|im_start|>user\n"
    assert tokenizer.decode(after) == expected


def test_template_stripping_reasoning_refused_with_texts(make_tokenizer):
    with pytest.raises(TemplateError) as error:
        derive_pieces(make_tokenizer("strips_reasoning"), AgentConfig())
    before, after = str(error.value).split("shown")
    assert "'example/strips_reasoning' drops the reasoning of earlier turns" in before
    assert "sent '<think>reasoning probe</think><answer>action probe</answer>'" in before
    assert "assistant\\n<answer>action probe</answer>" in after
    assert "agent.earlier_thoughts = 'dropped'" in after


@pytest.mark.parametrize(
    ("name", "expected", "actual"),
    [
        ("changes_system", "has 1 messages", "has 3 messages"),
        (
            "marks_third_turn",
            "state probe 2<|im_end|>\\n<|im_start|>assist",
            "state probe 2<|im_end|>\\nThis is taking",
        ),
    ],
)
def test_template_changing_earlier_text_refused(make_tokenizer, name, expected, actual):
    with pytest.raises(TemplateError) as error:
        derive_pieces(make_tokenizer(name), AgentConfig())
    before, after = str(error.value).split("found")
    assert expected in before
    assert actual in after


def test_template_without_end_token_refused(make_tokenizer):
    with pytest.raises(TemplateError, match="does not begin with a special token"):
        derive_pieces(make_tokenizer("no_end_token"), AgentConfig())


def test_tokenizer_without_a_template_is_refused(make_tokenizer):
    with pytest.raises(TemplateError, match=r"'example/None' has no chat template: it belongs to a base model"):
        derive_pieces(make_tokenizer(None), AgentConfig())


def test_template_refusing_plain_messages_refused(make_tokenizer):
    tokenizer = make_tokenizer("qwen2.5")
    tokenizer.chat_template = "{{ raise_exception('tools are needed') }}"
    with pytest.raises(TemplateError, match="tools are needed"):
        derive_pieces(tokenizer, AgentConfig())


def test_template_refusing_roles_names_them(make_tokenizer):
    with pytest.raises(
        TemplateError, match=r"2 messages with the roles system, user: .*leave agent.system_prompt empty"
    ):
        derive_pieces(make_tokenizer("gemma"), AgentConfig(system_prompt="Be brief."))


def test_response_ends_at_declared_tokens(make_tokenizer):
    tokenizer = make_tokenizer("llama3")
    bos = tokenizer.bos_token_id
    letter = tokenizer.encode("a", add_special_tokens=False)[0]
    tokenizer.declared_end_ids = {bos: "generation_config.json", letter: "config.json", 10**6: "config.json"}
    pieces = derive_pieces(tokenizer, AgentConfig())
    assert [(end.text, end.source) for end in pieces.ends] == [
        ("<|eot_id|>", "chat template"),
        ("<|end_of_text|>", "tokenizer"),
        ("<bos>", "generation_config.json"),
    ]  # but not at an ordinary letter, nor at an id of another vocabulary
    assert pieces.stop_token_ids == (*tokenizer.convert_tokens_to_ids(["<|eot_id|>", "<|end_of_text|>"]), bos)


QWEN = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."


@pytest.mark.parametrize(
    ("name", "settings", "inserted"),
    [
        ("qwen2.5", {}, QWEN),
        ("qwen2.5", {"system_prompt": "Be brief."}, ""),
        ("qwen2.5", {"template_system_prompt": "empty"}, ""),
        ("llama3", {}, ""),
        ("gemma", {"template_system_prompt": "empty"}, ""),
        ("mistral", {}, ""),
    ],
)
def test_inserted_system_prompt_is_known(make_tokenizer, name, settings, inserted):
    assert derive_pieces(make_tokenizer(name), AgentConfig(**settings)).inserted_system_prompt == inserted


def test_inserted_system_prompt_can_be_omitted(make_tokenizer):
    tokenizer = make_tokenizer("qwen2.5")
    opening, *_ = text_of(tokenizer, derive_pieces(tokenizer, AgentConfig(template_system_prompt="empty")))
    assert opening == "<|im_start|>system\n<|im_end|>\n<|im_start|>user\n"
    gemma = make_tokenizer("gemma")  # inserts none, and refuses the role
    opening, *_ = text_of(gemma, derive_pieces(gemma, AgentConfig(template_system_prompt="empty")))
    assert opening == "<bos><start_of_turn>user\n"


def test_system_prompt_replacements_are_exclusive():
    with pytest.raises(ValueError, match="leave template_system_prompt out"):
        AgentConfig(system_prompt="Be brief.", template_system_prompt="empty")


def test_template_hiding_user_messages_refused(make_tokenizer):
    tokenizer = make_tokenizer("qwen2.5")
    tokenizer.chat_template = "{{ messages[-1]['content'] }}<|im_end|>"
    with pytest.raises(TemplateError, match="does not show the user message 'state probe 0'"):
        derive_pieces(tokenizer, AgentConfig())


def test_reasoning_opening_template_requires_setting(make_tokenizer):
    tokenizer = make_tokenizer("opens_thought")
    with pytest.raises(TemplateError, match="should_prefill_think = true"):
        derive_pieces(tokenizer, AgentConfig(earlier_thoughts="dropped"))
    assert derive_pieces(tokenizer, AgentConfig(earlier_thoughts="dropped", should_prefill_think=True)).opens_thought


def test_template_keeping_reasoning_drops_nothing(make_tokenizer):
    with pytest.raises(TemplateError, match="earlier_thoughts = 'kept'"):
        derive_pieces(make_tokenizer("qwen2.5"), AgentConfig(earlier_thoughts="dropped"))
