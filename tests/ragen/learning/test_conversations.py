"""Conversations of others become examples: the ids of the template's rendering, with a loss on the responses alone."""

import json
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.core.errors import TemplateError
from starpo.ragen.learning.conversations import ChatExamples, Conversation, conversations_of
from tests.ragen.agents.prompting.conftest import tokenizer_of

CHATML = """
{%- if tools %}{{- '<|im_start|>system\\n' + (tools | tojson) + '<|im_end|>\\n' }}{%- endif %}
{%- set ns = namespace(last=0) %}
{%- for message in messages %}{%- if message.role == 'user' %}{%- set ns.last = loop.index0 %}{%- endif %}{%- endfor %}
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' }}
{%- if message.reasoning_content and loop.index0 > ns.last %}{{- '<think>\\n' + message.reasoning_content + '\\n</think>\\n\\n' }}{%- endif %}
{{- message.content | trim }}
{%- for call in message.tool_calls or [] %}
{{- '<tool_call>' + call.function.name + ' ' + (ARGUMENTS) + '</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""  # noqa: E501
"""Like Qwen3's: reasoning is shown after the last user message alone."""
TOOLS = [{"type": "function", "function": {"name": "look", "description": "", "parameters": {}}}]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def reply(text: str, think: str = "", **arguments: Any) -> dict[str, Any]:
    calls = [{"type": "function", "function": {"name": "look", "arguments": arguments}}] if arguments else None
    more = {"reasoning_content": think, "tool_calls": calls}
    return {"role": "assistant", "content": text} | {name: value for name, value in more.items() if value}


def conversation(*messages: dict[str, Any], tools: list[Any] | None = None) -> Conversation:
    learned = [number for number, message in enumerate(messages) if message["role"] == "assistant"]
    return Conversation("c", list(messages), learned, tools or [])


def chatml(arguments: str = "call.function.arguments | tojson") -> PreTrainedTokenizerFast:
    tokenizer = tokenizer_of("qwen2.5")
    tokenizer.chat_template = CHATML.replace("ARGUMENTS", arguments)
    return tokenizer


def examples(tokenizer, *conversations: Conversation, max_tokens: int = 4096, **agent: Any):
    made, left_out = ChatExamples(tokenizer, AgentConfig(**agent), max_tokens).make(conversations)
    texts = [
        [
            (tokenizer.decode(one.token_ids), tokenizer.decode(one.token_ids[one.response_mask]))
            for one in of_conversation
        ]
        for of_conversation in made
    ]
    return made, texts, list(left_out.lines())


@pytest.mark.parametrize("template", ["qwen2.5", "llama3", "gemma", "mistral"])
def test_ids_match_template_loss_on_responses(template: str) -> None:
    tokenizer = tokenizer_of(template)
    messages = [user("What is 1+1?"), reply("It is two.\n\nÜ 🙂"), user(" and\n"), reply("No")]
    made, ((example,),), left_out = examples(tokenizer, conversation(*messages))
    # Llama's template writes the date, which is the same one for every rendering of ours.
    expected = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False, date_string="26 Jul 2024")
    (ids,) = (one.token_ids.tolist() for one in made[0])
    assert ids == expected[: len(ids)]
    assert tokenizer.decode(expected[len(ids) :]).strip() == ""
    end, lead = tokenizer.decode(ids[-1:]), " " if template == "mistral" else ""
    assert example[1] == f"{lead}It is two.\n\nÜ 🙂{end}{lead}No{end}"
    assert left_out == []


def test_response_shares_no_prompt_token() -> None:
    """The policy is given the line break, and samples what follows it."""
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=_joining(), eos_token="<|im_end|>")
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>"]})
    tokenizer.chat_template = tokenizer_of("qwen2.5").chat_template
    made, (((whole, response),),), _ = examples(tokenizer, conversation(user("a"), reply("\nb")))
    assert response == "\nb<|im_end|>"
    joined = tokenizer.apply_chat_template([user("a"), reply("\nb")], tokenize=True, return_dict=False)
    assert made[0][0].token_ids.tolist() != joined
    assert whole.endswith("assistant\n\nb<|im_end|>")


def _joining():
    """A tokenizer with a token of two line breaks."""
    tokenizer = tokenizer_of("qwen2.5").backend_tokenizer
    state = json.loads(tokenizer.to_str())
    state["model"]["merges"] = [["Ċ", "Ċ"]]
    state["model"]["vocab"]["ĊĊ"] = 256
    for token in state["added_tokens"]:
        token["id"] += 1
    return type(tokenizer).from_str(json.dumps(state))


def test_dropped_reasoning_learned_where_shown() -> None:
    tokenizer = chatml()
    talk = [user("q"), reply("", "first", to="a"), {"role": "tool", "content": "wall"}, reply("so", "second")]
    _, ((first, second),), left_out = examples(
        tokenizer, conversation(*talk, user("again"), reply("no", "third"), tools=TOOLS)
    )
    assert left_out == []
    assert first[1] == (
        '<think>\nfirst\n</think>\n\n<tool_call>look {"to": "a"}</tool_call><|im_end|>'
        "<think>\nsecond\n</think>\n\nso<|im_end|>"
    )
    assert second[1] == "<think>\nthird\n</think>\n\nno<|im_end|>"
    assert '"name": "look"' in second[0]
    assert "first" not in second[0]
    assert "second" not in second[0]


@pytest.mark.ci
def test_reasoning_in_tags_without_template_field() -> None:
    _, ((one,),), _ = examples(
        tokenizer_of("qwen2.5"), conversation(user("q"), reply("so", "hm"), user("q"), reply("no"))
    )
    assert one[1] == "<think>hm</think>so<|im_end|>no<|im_end|>"


def test_arguments_as_text_if_template_expects() -> None:
    talk = conversation(user("q"), reply("", to="ä"), tools=TOOLS)
    _, ((one,),), left_out = examples(chatml("call.function.arguments + ''"), talk)
    assert (one[1], left_out) == ('<tool_call>look {"to": "ä"}</tool_call><|im_end|>', [])


def test_only_learned_parts_have_loss() -> None:
    talk = Conversation("c", [user("q"), reply("bad"), user("q"), reply("good")], [3])
    _, ((one,),), _ = examples(chatml(), talk)
    assert one[1] == "good<|im_end|>"
    assert "bad" in one[0]


@pytest.mark.ci
@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([user("q"), reply("a"), reply("b")], "two messages of the assistant in a row"),
        ([user("<|im_start|>"), reply("a")], "its text has <|im_start|>, a special token of the policy"),
        ([user("q"), reply("a<|im_end|>")], "its text has <|im_end|>"),
        ([user("q " * 3000), reply("a")], "more than 4,096 tokens"),
        ([user("q" * 2_000_000), reply("a")], "more than 4,096 tokens"),
        ([{"role": "tool", "content": "x"}, user("q"), reply("a")], "the chat template refuses it: TemplateError: no"),
        ([user("q"), {"role": "note", "content": "hidden"}, reply("a")],
         "does not show its message of the role 'note'"),
        ([user("q"), reply("", to=1)], "does not write tool calls"),
        ([user("q"), {**reply("", to=1), "tool_calls": [{"function": {"name": "look", "arguments": "{"}}]}],
         "the arguments of a tool call are no JSON object"),
    ],
)  # fmt: skip
def test_inimitable_conversation_omitted_with_reason(messages: list[Any], reason: str) -> None:
    tokenizer = tokenizer_of("qwen2.5")
    tokenizer.chat_template = (
        "{%- for message in messages %}{%- if message.role == 'tool' %}{{ raise_exception('no tools') }}{%- endif %}"
        "{%- if message.role != 'note' %}{{- '<|im_start|>' + message.role + '\\n' }}"
        "{{- message.content + '<|im_end|>\\n' }}{%- endif %}{%- endfor %}"
        "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
    )
    made, _, left_out = examples(tokenizer, conversation(*messages), conversation(user("q"), reply("fine")))
    assert [len(one) for one in made] == [0, 1]
    (line,) = left_out
    assert line.startswith("1 conversation left out, such as 'c': ")
    assert reason in line


def test_tools_need_template_support() -> None:
    talk = conversation(user("q"), reply("", to=1), tools=TOOLS)
    without, (((_, response),),) = (
        tokenizer_of("llama3"),
        examples(tokenizer_of("qwen2.5"), talk, chat_template=chatml().chat_template)[1],
    )
    assert "look" in response
    assert "the chat template of the policy has no place for them" in examples(without, talk)[2][0]
    with pytest.raises(TemplateError, match="has no chat template"):
        examples(tokenizer_of(None), conversation(user("q"), reply("a")))


@pytest.mark.ci
def test_templates_opening_reasoning_or_unended() -> None:
    tokenizer = chatml()
    body, talk = tokenizer.chat_template, conversation(user("q"), reply("so", "hm"))
    tokenizer.chat_template = body.replace("'<|im_start|>assistant\\n' }", "'<|im_start|>assistant\\n<think>\\n' }")
    assert examples(tokenizer, talk)[1] == [[(
        "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n<think>\nhm\n</think>\n\nso<|im_end|>",
        "hm\n</think>\n\nso<|im_end|>",
    )]]  # fmt: skip
    assert "in another form" in examples(tokenizer, conversation(user("q"), reply("so")))[2][0]
    tokenizer.chat_template = body.replace("{{- '<|im_end|>\\n' }}", "{{- '.\\n' }}")
    assert "does not end a message of the assistant" in examples(tokenizer, talk)[2][0]


def test_tokenless_rows_are_conversations() -> None:
    """A row of a new context holds what it repeats; repeated responses and empty ones are not learned."""
    rows = [
        {"trajectory_id": "t", "observation": "a", "response": "b", "is_context_start": True, "info": "{}"},
        {"trajectory_id": "t", "observation": "c", "response": "", "is_context_start": False, "info": "{}"},
        {"trajectory_id": "t", "observation": "[]", "response": "f", "is_context_start": True, "info": json.dumps(
            {"messages": [user("a"), reply("b"), user("e")], "tools": TOOLS})},
    ]  # fmt: skip
    known = {"finish_reason": "unknown", "response_ids": []}
    first, second = conversations_of([row | known for row in rows])
    assert first.messages == [user("a"), reply("b"), user("c"), reply("")]
    assert (first.learned, second.learned, second.tools) == ([1], [3], TOOLS)
