"""AG2."""

import asyncio
import json
import os
import sys

from ag2 import Agent, tool
from ag2.config import OpenAIConfig, OpenAIResponsesConfig
from pydantic import BaseModel

TASK = json.loads(os.environ["STARPO_TASK"])
PRICES = {"tea": 3, "milk": 2}


class Quote(BaseModel):
    """What an item costs."""

    item: str
    price: int


@tool
async def price(item: str) -> int:
    """The price of an item."""
    return PRICES[item]


async def answered(config, **settings):
    """The reply of an agent."""
    agent = Agent("seller", prompt="You sell.", config=config, **settings)
    return (await agent.ask("What does tea cost?")).body


CHAT = OpenAIConfig(model="policy")
FEATURES = {
    "tools": lambda: answered(CHAT, tools=[price]),
    "parallel": lambda: answered(CHAT, tools=[price]),
    "streaming": lambda: answered(OpenAIConfig(model="policy", streaming=True), tools=[price]),
    "structured": lambda: answered(CHAT, response_schema=Quote),
    "responses": lambda: answered(OpenAIResponsesConfig(model="policy"), tools=[price]),
}
answer = str(asyncio.run(FEATURES[TASK["feature"]]()))
print(answer, file=sys.stderr)
print(json.dumps({"reward": 1.0, "success": TASK["expected"] in answer}))
