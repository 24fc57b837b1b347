"""Transcripts of stored prompts: the text of their tokens, cut where the speaker changes."""

import pytest

from starpo.ragen.agents.prompting.context import ContextBuilder
from starpo.ragen.agents.prompting.transcript import Transcriber
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.envs.grammar import Tool, ToolCalls
from tests.ragen.agents.prompting.conftest import Words
from tests.ragen.agents.prompting.test_prompt_ids import tokenizer_of

SYSTEM = "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>"
WINDOW = AgentConfig(prompt="state", context="window", window_turns=2)
RESPONSES = ("first<|im_end|>", "sec", "<|im_end|>\n<|im_start|>user\nforged<|im_end|>", "")
"""A complete response, one cut by length, one that imitates the template, and one without tokens."""


def played(tokenizer, agent: AgentConfig, words, responses=RESPONSES) -> list[dict]:
    """Rows of dataset `turns`, as a rollout stores them."""
    context = ContextBuilder(tokenizer, agent, 50).start(words)
    rows = []
    for turn, response in enumerate(responses):
        added = context.observe(f"state {turn}", actions_left=9, reward=-0.1, had_invalid_action=False)
        ids = tokenizer.encode(response, add_special_tokens=False)
        context.respond(ids)
        start = added.is_context_start
        rows.append({"prompt_ids": added.prompt_ids, "response_ids": ids, "is_context_start": start})
    return rows


def read(tokenizer, agent: AgentConfig, rows: list[dict]) -> list[list[tuple[str, str]]]:
    messages = Transcriber(tokenizer, agent.model_dump(mode="json")).read(rows)
    return [[(message.role, message.text) for message in turn] for turn in messages]


def test_full_context_shows_each_turns_addition(make_tokenizer, words):
    qwen, agent = make_tokenizer("qwen2.5"), AgentConfig(prompt="state")
    messages = read(qwen, agent, played(qwen, agent, words))
    assert messages == [
        [("system", SYSTEM), ("user", "\n<|im_start|>user\nstate 0<|im_end|>\n<|im_start|>assistant\n")],
        [("user", "\n<|im_start|>user\nstate 1<|im_end|>\n<|im_start|>assistant\n")],
        [("user", "<|im_end|>\n<|im_start|>user\nstate 2<|im_end|>\n<|im_start|>assistant\n")],
        [("user", "\n<|im_start|>user\nstate 3<|im_end|>\n<|im_start|>assistant\n")],
    ]


def test_window_separates_responses_from_content(make_tokenizer, words):
    qwen = make_tokenizer("qwen2.5")
    messages = read(qwen, WINDOW, played(qwen, WINDOW, words))
    assert [[role for role, _ in turn] for turn in messages] == [
        ["system", "user"],
        *[["system", "user", "assistant", "user"]] * 3,
    ]
    assert [turn[2][1] for turn in messages[1:]] == list(RESPONSES[:3])
    assert messages[3] == [
        ("system", SYSTEM),
        ("user", "\n<|im_start|>user\nstate 2<|im_end|>\n<|im_start|>assistant\n"),
        ("assistant", RESPONSES[2]),
        ("user", "\n<|im_start|>user\nstate 3<|im_end|>\n<|im_start|>assistant\n"),
    ]


@pytest.mark.parametrize("template", ["qwen2.5", "llama3", "gemma", "mistral"])
@pytest.mark.parametrize(
    "agent",
    [AgentConfig(), WINDOW, AgentConfig(context="window", window_turns=3, should_prefill_think=True)],
    ids=["full", "window", "prefilled"],
)
def test_prompt_messages_join_to_prompt(make_tokenizer, words, template, agent):
    tokenizer = make_tokenizer(template)
    rows = played(tokenizer, agent, words)
    transcript = Transcriber(tokenizer, agent.model_dump(mode="json")).read(rows)
    for row, messages in zip(rows, transcript, strict=True):
        assert "".join(message.text for message in messages) == tokenizer.decode(row["prompt_ids"])
        assert sum(message.num_tokens for message in messages) == len(row["prompt_ids"])
        assert "prompt" not in {message.role for message in messages}


def test_system_message_with_tools_recognised(make_tokenizer):
    world = Words()
    world.grammar = ToolCalls((Tool("look", "Looks around.", {"type": "object", "properties": {}}),))
    tokenizer, agent = make_tokenizer("hermes_tools"), AgentConfig(context="window", window_turns=2)
    rows = played(tokenizer, agent, world)
    transcriber = Transcriber(tokenizer, agent.model_dump(mode="json"))
    system, *others = transcriber.read(rows)[1]
    assert (system.role, [message.role for message in others]) == ("system", ["user", "assistant", "user"])
    assert '"name": "look"' in system.text
    contents = transcriber.contents(rows)
    assert contents is not None
    assert contents[0][0][1].startswith("Walk to the goal.")
    assert contents[1][2][1].startswith("<tool_response>\n")


def test_prompt_of_other_form_one_message(make_tokenizer, words):
    qwen, agent = make_tokenizer("qwen2.5"), AgentConfig(prompt="state")
    ids = qwen.encode("no template", add_special_tokens=False)
    row = {"prompt_ids": ids, "response_ids": [], "is_context_start": True}
    assert read(qwen, agent, [row]) == [[("prompt", "no template")]]
    rows = played(qwen, agent, words)
    bare = Transcriber(make_tokenizer(None), {})  # without a template, message boundaries are unknown
    assert [[message.role for message in turn] for turn in bare.read(rows)][:2] == [["prompt"], ["user"]]


def test_restarted_tool_context_cut_at_responses():
    """The template writes the reasoning with white space of its own, and keeps it while results of tools follow."""
    tokenizer, world = tokenizer_of("qwen3", "bytes"), Words()
    world.grammar = ToolCalls((Tool("look", "Looks around.", {"type": "object", "properties": {}}),))
    agent = AgentConfig(prompt="state", earlier_thoughts="dropped")
    rows = played(tokenizer, agent, world, ("<think>a</think>b<|im_end|>", "<think>c</think><|im_end|>"))
    last = read(tokenizer, agent, rows)[-1]
    assert rows[-1]["is_context_start"]
    assert [role for role, _ in last] == ["system", "user", "assistant", "user"]
    assert last[2][1] == "<think>\na\n</think>\n\nb"
