"""pydantic-ai."""

import asyncio
import json
import os
import sys

from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput, PromptedOutput

TASK = json.loads(os.environ["STARPO_TASK"])
PRICES = {"tea": 3, "milk": 2}
MODEL = "openai-chat:policy"


class Quote(BaseModel):
    """What an item costs."""

    item: str
    price: int


def seller(**settings):
    """An agent with a tool."""
    agent = Agent(MODEL, **{"instructions": "You sell."} | settings)

    @agent.tool_plain
    def price(item: str) -> int:
        """The price of an item."""
        return PRICES[item]

    return agent


async def streamed():
    """The text of a streamed run."""
    async with seller().run_stream("What does tea cost?") as run:
        return await run.get_output()


async def instructions():
    """Instructions that a function makes anew for every call."""
    agent, number = seller(), iter(range(10))
    agent.instructions(lambda: f"Call {next(number)}.")
    return (await agent.run("What does tea cost?")).output


async def delegated():
    """An agent that is another one's tool."""
    boss = Agent(MODEL, instructions="Delegate.")

    @boss.tool_plain
    async def ask_seller(question: str) -> str:
        """Ask the seller."""
        return (await seller().run(question)).output

    return (await boss.run("What does tea cost?")).output


async def answered(agent, question="What does tea cost?"):
    """The output of a run."""
    return (await agent.run(question)).output


FEATURES = {
    "tools": lambda: answered(seller()),
    "parallel": lambda: answered(seller(), "What do tea and milk cost?"),
    "streaming": streamed,
    "structured": lambda: answered(Agent(MODEL, output_type=Quote)),
    "structured, native": lambda: answered(Agent(MODEL, output_type=NativeOutput(Quote))),
    "structured, prompted": lambda: answered(Agent(MODEL, output_type=PromptedOutput(Quote))),
    "retries": lambda: answered(Agent(MODEL, output_type=Quote)),
    "instructions": instructions,
    "sub-agents": delegated,
    "responses": lambda: answered(Agent("openai-responses:policy")),
}
answer = str(asyncio.run(FEATURES[TASK["feature"]]()))
print(answer, file=sys.stderr)
print(json.dumps({"reward": 1.0, "success": TASK["expected"] in answer}))
