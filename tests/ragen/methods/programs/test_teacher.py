"""A teacher answers a program's calls, and a new policy has the vocabulary of what was said."""

import pytest

from starpo.ragen.agents.policy.load import load_tokenizer
from starpo.ragen.config.load import apply_overrides
from starpo.ragen.config.starpo import StarPOConfig
from starpo.ragen.core.errors import ConfigError, EngineError
from starpo.ragen.methods.programs.teacher import record_for_new_policy

AGENT = """
import json
import os

from openai import OpenAI

TOOL = {"name": "look", "description": "Say what lies there.", "parameters": {"type": "object", "properties": {}}}


def play(task):
    client, messages = OpenAI(), [{"role": "user", "content": f"box {task['n']} <|im_end|>"}]
    while True:
        said = client.chat.completions.create(
            model="policy", messages=messages, tools=[{"type": "function", "function": TOOL}]
        ).choices[0].message
        messages.append(said.model_dump(exclude_none=True))
        if not said.tool_calls:
            return {"reward": float(said.content == "a cable"), "calls": len(messages)}
        for call in said.tool_calls:
            messages.append({"role": "tool", "tool_call_id": call.id, "content": "a cable"})


def teach(messages, task, rng):
    assert messages[0]["content"].startswith(f"box {task['n']}")
    if messages[-1]["role"] == "tool":
        return messages[-1]["content"]
    return {"tool_calls": [{"name": "look", "arguments": {"box": task["n"]}}]}


def mumble(messages, task, rng):
    return {"tools": []}
"""


@pytest.fixture
def config(folder) -> StarPOConfig:
    (folder / "taught.py").write_text(AGENT)
    program = {"type": "program", "command": "taught:play", "tasks": "tasks.jsonl"}
    base = StarPOConfig.model_validate({"environment": {"type": "bandit"}})
    return apply_overrides(base, {"environment": program})


@pytest.mark.ci
def test_teacher_text_in_new_vocabulary(config, folder):
    turns = record_for_new_policy(config, "taught:teach", folder / "tiny", 3, 1)
    rows = turns.to_pylist()
    assert [row["status"] for row in rows] == ["ok"] * 6
    assert sum(row["success"] for row in rows) == 3
    tokenizer = load_tokenizer(folder / "tiny")
    for row in rows:
        assert tokenizer.decode(row["response_ids"]) == f"{row['response']}<|im_end|>"
    call = [tokenizer.decode(number) for number in rows[0]["response_ids"]]
    assert call[:3] == ['<tool_call>\n{"name": "', "look", '", "arguments": {']
    assert call[-2:] == ["}\n</tool_call>", "<|im_end|>"]
    opening = [tokenizer.decode(number) for number in rows[0]["prompt_ids"]]
    assert sum("Say what lies there." in token for token in opening) == 1  # the declaration of the tool is one token
    text = tokenizer.decode(rows[0]["prompt_ids"])
    assert text.count("<|im_end|>") == 3  # one is text of the program, not the end of a turn
    ends = rows[0]["prompt_ids"].count(tokenizer.convert_tokens_to_ids("<|im_end|>"))
    assert ends == 2
    with pytest.raises(ConfigError, match="already exists"):
        record_for_new_policy(config, "taught:teach", folder / "tiny", 3, 1)


@pytest.mark.ci
def test_silent_teacher_ends_recording(config, folder):
    with pytest.raises(EngineError, match="taught:mumble returned"):
        record_for_new_policy(config, "taught:mumble", folder / "tiny", 1, 1)
    assert not (folder / "tiny").exists()
