"""DSPy: a signature with a typed output, and ReAct."""

import json
import os
import sys

import dspy

TASK = json.loads(os.environ["STARPO_TASK"])
PRICES = {"tea": 3, "milk": 2}
SETTINGS = {"api_base": os.environ["OPENAI_BASE_URL"], "api_key": os.environ["OPENAI_API_KEY"], "cache": False}
dspy.configure(lm=dspy.LM("openai/policy", **SETTINGS))


def price(item: str) -> int:
    """The price of an item."""
    return PRICES[item]


def react():
    """An agent with a tool."""
    return dspy.ReAct("question -> answer", tools=[price])(question="What does tea cost?").answer


def predicted(adapter=None):
    """A typed output."""
    with dspy.context(adapter=adapter):
        return dspy.Predict("question -> price: int")(question="What does tea cost?").price


FEATURES = {
    "tools": react,
    "structured": predicted,
    "structured, json": lambda: predicted(dspy.JSONAdapter()),
    "retries": predicted,
}
answer = str(FEATURES[TASK["feature"]]())
print(answer, file=sys.stderr)
print(json.dumps({"reward": 1.0, "success": TASK["expected"] in answer}))
