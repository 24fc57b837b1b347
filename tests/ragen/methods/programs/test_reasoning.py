"""Reasoning in the conversations of programs: kept while only results of tools follow, where the template keeps it."""

import json

import pytest

from starpo.ragen.agents.prompting.context import ContextBuilder
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.methods.programs.chat import Call, ChatMessage, ChatRequest
from starpo.ragen.methods.programs.conversations import Conversations
from starpo.ragen.methods.programs.spelling import Spelling
from tests.ragen.agents.prompting.test_prompt_ids import tokenizer_of

SEARCH = {"type": "function", "function": {"name": "search", "description": "Finds.", "parameters": {"type": "object"}}}
TOOLS = json.dumps([SEARCH])
CALL = Call("search", '{"query": "x"}')
SAMPLED = '<tool_call>\n{"name": "search", "arguments": {"query": "x"}}\n</tool_call>'


def spelling_of(template: str, **settings) -> tuple:
    tokenizer = tokenizer_of(template, "bytes")
    contexts = ContextBuilder(tokenizer, AgentConfig(**settings), 16)
    return tokenizer, contexts, Spelling(tokenizer, contexts)


def rendered(tokenizer, messages, tools: str = "[]") -> list[int]:
    """The ids of the template's own rendering."""
    sent = [{"role": message.role, "content": message.content} for message in messages]
    for message, fields in zip(messages, sent, strict=True):
        calls = [{"name": call.name, "arguments": json.loads(call.arguments)} for call in message.calls]
        fields |= {"tool_calls": [{"type": "function", "function": call} for call in calls]} if calls else {}
    return tokenizer.apply_chat_template(sent, tools=json.loads(tools) or None, add_generation_prompt=True)["input_ids"]


LOOP = (
    ChatMessage("user", "  find it\n"),
    ChatMessage("assistant", "<think>\nfirst\n</think>\n\n", (CALL,)),
    ChatMessage("tool", "nothing"),
    ChatMessage("assistant", "<think> second</think>Well", (CALL,)),
    ChatMessage("tool", "\nfound it"),
    ChatMessage("assistant", "<think>third</think>done"),
    ChatMessage("user", "more"),
    ChatMessage("assistant", "<think></think>", (CALL,)),
    ChatMessage("tool", "much"),
)


@pytest.mark.ci
@pytest.mark.parametrize("num_messages", [1, 3, 5, 7, 9])
@pytest.mark.parametrize(
    ("template", "settings"), [("qwen3", {"earlier_thoughts": "dropped"}), ("hermes_tools", {}), ("writes_anew", {})]
)
def test_new_contexts_match_template_ids(template, settings, num_messages):
    tokenizer, _, spelling = spelling_of(template, **settings)
    messages = LOOP[:num_messages]
    if template != "qwen3":  # these show no calls
        messages = [ChatMessage(one.role, one.content or "none") for one in messages]
    tools = TOOLS if template == "qwen3" else "[]"  # the others write no calls
    assert spelling.opening(messages, tools).prompt_ids == rendered(tokenizer, messages, tools)


@pytest.mark.parametrize(
    ("thought", "goes_on"), [("<think>\nfirst\n</think>\n\n", True), ("<think>first</think>", False), ("", True)]
)
def test_context_continues_through_tool_results(thought, goes_on):
    tokenizer, contexts, spelling = spelling_of("qwen3", earlier_thoughts="dropped")
    conversations = Conversations(spelling, keeps_thoughts=False)
    messages = [ChatMessage("user", "find it")]
    first = conversations.prompt(ChatRequest(tuple(messages), TOOLS))
    ids = [*contexts.response_ids(thought + SAMPLED), contexts.stop_token_ids[0]]
    reply = ChatMessage("assistant", thought.strip(), (CALL,))
    conversations.answered(first, reply, ids)
    messages += [reply, ChatMessage("tool", "nothing")]
    second = conversations.prompt(ChatRequest(tuple(messages), TOOLS))
    assert second.ids == rendered(tokenizer, messages, TOOLS)
    assert (second.ids[: len(first.ids) + len(ids)] == first.ids + ids) == goes_on
    assert (second.follows is not None) == goes_on
    assert ("first" in tokenizer.decode(second.ids)) == ("first" in thought)

    answer = ChatMessage("assistant", "<think>\nthird\n</think>\n\ndone")
    conversations.answered(second, answer, contexts.response_ids(answer.content))
    messages += [answer, ChatMessage("user", "more")]
    third = conversations.prompt(ChatRequest(tuple(messages), TOOLS))
    assert third.follows is None  # the template drops the reasoning from here on
    assert third.ids == rendered(tokenizer, messages, TOOLS)
    assert "think" not in tokenizer.decode(third.ids)


@pytest.mark.ci
def test_reasoning_sent_in_templates_field():
    tokenizer, _, spelling = spelling_of("reads_field", should_prefill_think=True)
    messages = [ChatMessage("user", "a"), ChatMessage("assistant", "<think>b </think>\nc"), ChatMessage("user", "d")]
    text = tokenizer.decode(spelling.opening(messages, "[]").prompt_ids)
    assert text.count("<|im_start|>assistant\n<think>\nb\n</think>\n\nc<|im_end|>\n") == 1
