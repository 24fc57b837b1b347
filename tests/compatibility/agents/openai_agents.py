"""OpenAI Agents SDK, `/v1/responses` unless the feature says otherwise."""

import asyncio
import json
import os
import sys

from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI
from pydantic import BaseModel

set_tracing_disabled(True)
TASK = json.loads(os.environ["STARPO_TASK"])
PRICES = {"tea": 3, "milk": 2}


class Quote(BaseModel):
    """What an item costs."""

    item: str
    price: int


@function_tool
def price(item: str) -> int:
    """The price of an item."""
    return PRICES[item]


CHAT = OpenAIChatCompletionsModel("policy", AsyncOpenAI())
SELLER = Agent(name="Seller", instructions="You sell.", model=CHAT, tools=[price])


async def streamed(agent):
    """The final output of a streamed run."""
    run = Runner.run_streamed(agent, "What does tea cost?")
    async for _ in run.stream_events():
        pass
    return run.final_output


async def structured():
    """A pydantic model."""
    agent = Agent(name="Seller", model=CHAT, output_type=Quote)
    return (await Runner.run(agent, "What does tea cost?")).final_output.price


async def instructions():
    """Instructions that a function makes anew for every call."""
    number = iter(range(10))
    agent = Agent(name="Seller", model=CHAT, tools=[price], instructions=lambda context, agent: f"Call {next(number)}.")
    return (await Runner.run(agent, "What does tea cost?")).final_output


async def handoff():
    """An agent that hands over to another."""
    greeter = Agent(name="Greeter", instructions="Hand over.", model=CHAT, handoffs=[SELLER])
    return (await Runner.run(greeter, "What does tea cost?")).final_output


async def answered(agent, question="What does tea cost?"):
    """The final output of a run."""
    return (await Runner.run(agent, question)).final_output


RESPONSES = Agent(name="Seller", instructions="You sell.", model="policy", tools=[price])
FEATURES = {
    "tools": lambda: answered(SELLER),
    "parallel": lambda: answered(SELLER, "What do tea and milk cost?"),
    "streaming": lambda: streamed(SELLER),
    "structured": structured,
    "instructions": instructions,
    "sub-agents": handoff,
    "responses": lambda: answered(RESPONSES),
    "responses, streaming": lambda: streamed(RESPONSES),
}
answer = str(asyncio.run(FEATURES[TASK["feature"]]()))
print(answer, file=sys.stderr)
print(json.dumps({"reward": 1.0, "success": TASK["expected"] in answer}))
