"""Agents of other people's frameworks, unmodified, each in an environment of its own, against the endpoint.

The policy is a script, so that every feature is reached: what is tested is what a framework sends, and whether it
understands what comes back. docs/endpoint.md has these cases as a table.
"""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from starpo.ragen.agents.policy.tokenizer import make_tokenizer
from starpo.ragen.agents.prompting.context import ContextBuilder
from starpo.ragen.agents.rollout.episode import Episode
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.config.rollout import SamplingConfig
from starpo.ragen.methods.programs import player
from starpo.ragen.methods.programs.settings import ProgramSettings
from starpo.schemas.validate import validate
from tests.compatibility.environments import ENVIRONMENTS, install, make_python
from tests.ragen.agents.rollout.conftest import ScriptedEngine

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(900)]

AGENTS = Path(__file__).parent / "agents"
AGENT = AgentConfig(prompt="state", should_think=False, chat_template="hermes")
SAMPLING = SamplingConfig(max_response_tokens=600)

PACKAGES = {
    "plain": ["openai"],
    "openai_agents": ["openai-agents"],
    "pydantic_ai_agent": ["pydantic-ai-slim[openai]"],
    "langgraph_agent": ["langgraph", "langchain", "langchain-openai"],
    "smolagents_agent": ["smolagents[openai]"],
    "dspy_agent": ["dspy"],
    "ag2_agent": ["ag2[openai]"],
    "autogen_agent": ["autogen-agentchat", "autogen-ext[openai]"],
    "llama_index_agent": ["llama-index-core", "llama-index-llms-openai-like"],
    "node_agent": ["openai", "tsx"],
}
"""Agent -> what it needs from PyPI, or from npm."""


def call(name: str, **arguments: object) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


TEA, MILK, SAYS = call("price", item="tea"), call("price", item="milk"), "tea costs 3."
QUOTE = '{"item": "tea", "price": 3}'
PREDICTION = "[[ ## price ## ]]\n3\n\n[[ ## completed ## ]]"


@dataclass(frozen=True)
class Case:
    """What a policy says to an agent, and what comes of it.

    Attributes:
        agent: The agent's file.
        feature: What it does.
        responses: The policy's.
        refused: A word of the reason, where requests are refused.
        num_malformed: Number of responses without the form that was required.
    """

    agent: str
    feature: str
    responses: tuple[str, ...]
    refused: str = ""
    num_malformed: int = 0


CASES = [
    Case("plain", "tools", (TEA, SAYS)),
    Case("plain", "parallel", (TEA + MILK, SAYS)),
    Case("plain", "streaming", (TEA, SAYS)),
    Case("plain", "structured", (QUOTE,)),
    Case("plain", "retries", ("three", QUOTE), num_malformed=1),
    Case("plain", "instructions", (SAYS, SAYS)),
    Case("plain", "responses", (TEA + MILK, SAYS)),
    Case("node_agent", "tools", (TEA, SAYS)),
    Case("node_agent", "parallel", (TEA + MILK, SAYS)),
    Case("node_agent", "streaming", (TEA, SAYS)),
    Case("node_agent", "structured", (QUOTE,)),
    Case("node_agent", "responses", (SAYS,)),
    Case("openai_agents", "tools", (TEA, SAYS)),
    Case("openai_agents", "parallel", (TEA + MILK, SAYS)),
    Case("openai_agents", "streaming", (TEA, SAYS)),
    Case("openai_agents", "structured", (QUOTE,)),
    Case("openai_agents", "instructions", (TEA, SAYS)),
    Case("openai_agents", "sub-agents", (call("transfer_to_seller"), TEA, SAYS)),
    Case("openai_agents", "responses", (TEA, SAYS)),
    Case("openai_agents", "responses, streaming", (TEA, SAYS)),
    Case("pydantic_ai_agent", "tools", (TEA, SAYS)),
    Case("pydantic_ai_agent", "parallel", (TEA + MILK, SAYS)),
    Case("pydantic_ai_agent", "streaming", (TEA, SAYS)),
    Case("pydantic_ai_agent", "structured", (call("final_result", item="tea", price=3),)),
    Case("pydantic_ai_agent", "structured, native", (QUOTE,)),
    Case("pydantic_ai_agent", "structured, prompted", (QUOTE,)),
    Case("pydantic_ai_agent", "retries", (SAYS, call("final_result", item="tea", price=3)), num_malformed=1),
    Case("pydantic_ai_agent", "instructions", (TEA, SAYS)),
    Case("pydantic_ai_agent", "sub-agents", (call("ask_seller", question="tea?"), TEA, SAYS, SAYS)),
    Case("pydantic_ai_agent", "responses", (SAYS,)),
    Case("langgraph_agent", "tools", (TEA, SAYS)),
    Case("langgraph_agent", "parallel", (TEA + MILK, SAYS)),
    Case("langgraph_agent", "streaming", (TEA, SAYS)),
    Case("langgraph_agent", "structured", (QUOTE,)),
    Case("langgraph_agent", "structured, function_calling", (call("Quote", item="tea", price=3),)),
    Case("langgraph_agent", "structured, json_mode", (QUOTE,)),
    Case("langgraph_agent", "structured, agent", (TEA, call("Quote", item="tea", price=3))),
    Case("langgraph_agent", "sub-agents", (call("ask_seller", question="tea?"), TEA, SAYS, SAYS)),
    Case("langgraph_agent", "responses", (TEA, SAYS)),
    Case("smolagents_agent", "tools", (TEA, call("final_answer", answer="3"))),
    Case("smolagents_agent", "parallel", (TEA + MILK, call("final_answer", answer="3"))),
    Case("smolagents_agent", "streaming", (TEA, call("final_answer", answer="3"))),
    Case("smolagents_agent", "code", ("Thought: code\n<code>\nfinal_answer(price('tea'))\n</code>",)),
    Case("smolagents_agent", "structured", ('{"thought": "x", "code": "final_answer(price(\'tea\'))"}',)),
    Case("smolagents_agent", "retries", ("three", TEA, call("final_answer", answer="3")), num_malformed=1),
    Case(
        "smolagents_agent",
        "sub-agents",
        (call("seller", task="tea?"), TEA, call("final_answer", answer="3"), call("final_answer", answer="3")),
    ),
    Case(
        "dspy_agent",
        "tools",
        (
            "[[ ## next_thought ## ]]\na\n\n[[ ## next_tool_name ## ]]\nprice\n\n[[ ## next_tool_args ## ]]\n"
            '{"item": "tea"}\n\n[[ ## completed ## ]]',
            "[[ ## next_thought ## ]]\na\n\n[[ ## next_tool_name ## ]]\nfinish\n\n[[ ## next_tool_args ## ]]\n{}\n\n"
            "[[ ## completed ## ]]",
            "[[ ## reasoning ## ]]\na\n\n[[ ## answer ## ]]\n3\n\n[[ ## completed ## ]]",
        ),
    ),
    Case("dspy_agent", "structured", (PREDICTION,)),
    Case("dspy_agent", "structured, json", ('{"price": 3}',)),
    Case("dspy_agent", "retries", ("three", '{"price": 3}')),
    Case("ag2_agent", "tools", (TEA, SAYS)),
    Case("ag2_agent", "parallel", (TEA + MILK, SAYS)),
    Case("ag2_agent", "streaming", (TEA, SAYS)),
    Case("ag2_agent", "structured", (QUOTE,)),
    Case("ag2_agent", "responses", (TEA, SAYS)),
    Case("autogen_agent", "tools", (TEA, SAYS)),
    Case("autogen_agent", "parallel", (TEA + MILK, SAYS)),
    Case("autogen_agent", "streaming", (TEA, SAYS)),
    Case("autogen_agent", "structured", (QUOTE,)),
    Case("autogen_agent", "sub-agents", (call("seller", task="tea?"), TEA, SAYS, SAYS)),
    Case("llama_index_agent", "tools", (TEA, SAYS)),
    Case("llama_index_agent", "parallel", (TEA + MILK, SAYS)),
    Case("llama_index_agent", "streaming", (TEA, SAYS)),
    Case("llama_index_agent", "structured", (call("Quote", item="tea", price=3),)),
    Case("llama_index_agent", "sub-agents", (call("handoff", to_agent="seller", reason="price"), TEA, SAYS)),
    Case(
        "llama_index_agent",
        "react",
        ('Thought: a\nAction: price\nAction Input: {"item": "tea"}', f"Thought: I can answer.\nAnswer: {SAYS}"),
    ),
]


def command(agent: str) -> list[str]:
    """The command that starts an agent, in an environment that is made once."""
    if agent.startswith("node"):
        if not shutil.which("npm"):
            pytest.skip("npm is not installed")
        folder = ENVIRONMENTS / agent
        done = folder / ".installed"
        source = AGENTS / f"{agent}.ts"
        if not done.exists():
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "package.json").write_text('{"type": "module"}')
            install(["npm", "install", "--no-audit", "--no-fund", *PACKAGES[agent]], folder)
            done.touch()
        program = shutil.copy(source, folder)
        return [str(folder / "node_modules" / ".bin" / "tsx"), str(program)]
    return [str(make_python(agent, PACKAGES[agent])), str(AGENTS / f"{agent}.py")]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.agent}-{case.feature}")
def test_framework_plays(case, tmp_path):
    (tmp_path / "tasks.jsonl").write_text(json.dumps({"feature": case.feature, "expected": "3"}))
    settings = ProgramSettings(
        command=command(case.agent),
        tasks=str(tmp_path / "tasks.jsonl"),
        time_limit_s=200,
        max_calls=len(case.responses),
    )
    tokenizer = make_tokenizer()
    contexts = ContextBuilder(tokenizer, AGENT, SAMPLING.max_response_tokens)
    responses = iter(case.responses)
    engine = ScriptedEngine(tokenizer, lambda *_: next(responses))
    session = engine.session(SAMPLING, contexts.stop_token_ids)
    episodes = [Episode("g", 0, 0, 0, 100)]
    table = player.play(session, contexts, tokenizer, settings, AGENT, SAMPLING, 100_000, episodes)
    validate(table, "turns")
    rows = table.to_pylist()
    info = json.loads(rows[-1]["info"])
    assert [row["response"] for row in rows] == list(case.responses), info
    assert rows[-1]["success"], info
    assert [row["status"] for row in rows].count("format_error") == case.num_malformed
    refusals = info.get("refusals", [])
    assert bool(refusals) == bool(case.refused), refusals
    assert not case.refused or case.refused in refusals[0]
