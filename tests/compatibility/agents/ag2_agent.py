"""AG2 (formerly AutoGen 0.2)."""

import json
import os
import sys

from autogen import AssistantAgent, LLMConfig, UserProxyAgent, register_function
from pydantic import BaseModel

TASK = json.loads(os.environ["RAGEN_TASK"])
PRICES = {"tea": 3, "milk": 2}
PLACE = {
    "api_type": "openai", "model": "policy", "base_url": os.environ["OPENAI_BASE_URL"],
    "api_key": os.environ["OPENAI_API_KEY"],
}  # fmt: skip


class Quote(BaseModel):
    """What an item costs."""

    item: str
    price: int


def price(item: str) -> int:
    """The price of an item."""
    return PRICES[item]


def answered(**settings):
    """The last message of a chat of two agents."""
    seller = AssistantAgent("seller", system_message="You sell.", llm_config=LLMConfig({**PLACE, **settings}))
    user = UserProxyAgent("user", human_input_mode="NEVER", code_execution_config=False, max_consecutive_auto_reply=3)
    register_function(price, caller=seller, executor=user, description="The price of an item.")
    chat = user.initiate_chat(seller, message="What does tea cost?", max_turns=3, silent=True)
    return [message["content"] for message in chat.chat_history if message.get("name") == "seller"]


FEATURES = {
    "tools": answered,
    "parallel": answered,
    "structured": lambda: answered(response_format=Quote),
}
answer = str(FEATURES[TASK["feature"]]())
print(answer, file=sys.stderr)
print(json.dumps({"reward": 1.0, "success": TASK["expected"] in answer}))
