"""AutoGen's AgentChat."""

import asyncio
import json
import os
import sys

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.tools import AgentTool
from autogen_core.models import ModelFamily
from autogen_ext.models.openai import OpenAIChatCompletionClient
from pydantic import BaseModel

TASK = json.loads(os.environ["STARPO_TASK"])
PRICES = {"tea": 3, "milk": 2}
ABLE = {
    "vision": False, "function_calling": True, "json_output": True, "structured_output": True,
    "family": ModelFamily.UNKNOWN,
}  # fmt: skip


class Quote(BaseModel):
    """What an item costs."""

    item: str
    price: int


def price(item: str) -> int:
    """The price of an item."""
    return PRICES[item]


def client():
    """The policy."""
    return OpenAIChatCompletionClient(model="policy", model_info=ABLE)


def seller(**settings):
    """An agent with a tool."""
    return AssistantAgent(
        "seller",
        model_client=client(),
        tools=[price],
        description="Knows prices.",
        reflect_on_tool_use=True,
        **settings,
    )


async def answered(agent):
    """The last message of an agent."""
    return (await agent.run(task="What does tea cost?")).messages[-1].to_text()


FEATURES = {
    "tools": lambda: answered(seller()),
    "parallel": lambda: answered(seller()),
    "streaming": lambda: answered(seller(model_client_stream=True)),
    "structured": lambda: answered(AssistantAgent("seller", model_client=client(), output_content_type=Quote)),
    "sub-agents": lambda: answered(
        AssistantAgent("boss", model_client=client(), tools=[AgentTool(seller())], reflect_on_tool_use=True)
    ),
}
answer = str(asyncio.run(FEATURES[TASK["feature"]]()))
print(answer, file=sys.stderr)
print(json.dumps({"reward": 1.0, "success": TASK["expected"] in answer}))
