"""smolagents: an agent that calls tools, and one that writes code."""

import json
import os
import sys

from smolagents import CodeAgent, OpenAIServerModel, ToolCallingAgent, tool

TASK = json.loads(os.environ["STARPO_TASK"])
PRICES = {"tea": 3, "milk": 2}


@tool
def price(item: str) -> int:
    """The price of an item.

    Args:
        item: The item.
    """
    return PRICES[item]


def model():
    """The policy."""
    return OpenAIServerModel("policy", api_base=os.environ["OPENAI_BASE_URL"], api_key=os.environ["OPENAI_API_KEY"])


def answered(kind, **settings):
    """The final answer of an agent."""
    return kind(tools=[price], model=model(), max_steps=4, verbosity_level=0, **settings).run("What does tea cost?")


def delegated():
    """An agent with a managed one."""
    seller = ToolCallingAgent(
        tools=[price], model=model(), max_steps=4, verbosity_level=0, name="seller", description="Knows prices."
    )
    boss = ToolCallingAgent(tools=[], model=model(), managed_agents=[seller], max_steps=4, verbosity_level=0)
    return boss.run("What does tea cost?")


FEATURES = {
    "tools": lambda: answered(ToolCallingAgent),
    "parallel": lambda: answered(ToolCallingAgent),
    "streaming": lambda: answered(ToolCallingAgent, stream_outputs=True),
    "code": lambda: answered(CodeAgent),
    "structured": lambda: answered(CodeAgent, use_structured_outputs_internally=True),
    "retries": lambda: answered(ToolCallingAgent),
    "sub-agents": delegated,
}
answer = str(FEATURES[TASK["feature"]]())
print(answer, file=sys.stderr)
print("\n" + json.dumps({"reward": 1.0, "success": TASK["expected"] in answer}))
