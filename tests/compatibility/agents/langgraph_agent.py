"""LangChain's `create_agent` on LangGraph, and `ChatOpenAI` alone."""

import json
import os
import sys

from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

TASK = json.loads(os.environ["STARPO_TASK"])
PRICES = {"tea": 3, "milk": 2}


class Quote(BaseModel):
    """What an item costs."""

    item: str
    price: int


@tool
def price(item: str) -> int:
    """The price of an item."""
    return PRICES[item]


MODEL = ChatOpenAI(model="policy")


def answered(question="What does tea cost?", model=MODEL, tools=(price,), **settings):
    """The last message of an agent."""
    agent = create_agent(model, list(tools), system_prompt="You sell.", **settings)
    return agent.invoke({"messages": [("user", question)]})["messages"][-1].text


def streamed():
    """The pieces of an agent's messages, put together."""
    agent = create_agent(MODEL, [price])
    pieces = agent.stream({"messages": [("user", "What does tea cost?")]}, stream_mode="messages")
    return "".join(piece.text for piece, _ in pieces)


def delegated():
    """An agent that is another one's tool."""

    @tool
    def ask_seller(question: str) -> str:
        """Ask the seller."""
        return answered(question)

    return answered(tools=[ask_seller])


def structured_agent():
    """An agent whose last message is a pydantic model."""
    agent = create_agent(MODEL, [price], response_format=Quote)
    return agent.invoke({"messages": [("user", "What does tea cost?")]})["structured_response"].price


FEATURES = {
    "tools": answered,
    "parallel": lambda: answered("What do tea and milk cost?"),
    "streaming": streamed,
    "structured": lambda: MODEL.with_structured_output(Quote).invoke("What does tea cost?").price,
    "structured, function_calling": lambda: (
        MODEL.with_structured_output(Quote, method="function_calling").invoke("What does tea cost?").price
    ),
    "structured, json_mode": lambda: (
        MODEL.with_structured_output(Quote, method="json_mode").invoke("Tea, in JSON?").price
    ),
    "structured, agent": structured_agent,
    "sub-agents": delegated,
    "responses": lambda: answered(model=ChatOpenAI(model="policy", use_responses_api=True)),
}
answer = str(FEATURES[TASK["feature"]]())
print(answer, file=sys.stderr)
print(json.dumps({"reward": 1.0, "success": TASK["expected"] in answer}))
