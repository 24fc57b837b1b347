"""LlamaIndex."""

import asyncio
import json
import os
import sys

from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent, ReActAgent
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel

TASK = json.loads(os.environ["STARPO_TASK"])
PRICES = {"tea": 3, "milk": 2}
MODEL = OpenAILike(
    model="policy", api_base=os.environ["OPENAI_BASE_URL"], api_key=os.environ["OPENAI_API_KEY"], is_chat_model=True,
    is_function_calling_model=True,
)  # fmt: skip


class Quote(BaseModel):
    """What an item costs."""

    item: str
    price: int


def price(item: str) -> int:
    """The price of an item."""
    return PRICES[item]


async def answered(agent):
    """The answer of an agent."""
    return await agent.run("What does tea cost?")


def seller(**settings):
    """An agent with a tool."""
    return FunctionAgent(name="seller", description="Knows prices.", tools=[price], llm=MODEL, **settings)


async def handoff():
    """An agent that hands over to another."""
    boss = FunctionAgent(name="boss", description="Delegates.", tools=[], llm=MODEL, can_handoff_to=["seller"])
    return await AgentWorkflow([boss, seller()], root_agent="boss").run("What does tea cost?")


async def structured():
    """A pydantic model."""
    return MODEL.as_structured_llm(Quote).complete("What does tea cost?").raw.price


FEATURES = {
    "tools": lambda: answered(seller(streaming=False)),
    "parallel": lambda: answered(seller(streaming=False)),
    "streaming": lambda: answered(seller()),
    "structured": structured,
    "sub-agents": handoff,
    "react": lambda: answered(ReActAgent(tools=[price], llm=MODEL)),
}
answer = str(asyncio.run(FEATURES[TASK["feature"]]()))
print(answer, file=sys.stderr)
print(json.dumps({"reward": 1.0, "success": TASK["expected"] in answer}))
