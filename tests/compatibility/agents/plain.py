"""A loop of one's own over the package `openai`."""

import json
import os
import sys

from openai import OpenAI

TASK = json.loads(os.environ["STARPO_TASK"])
PRICES = {"tea": 3, "milk": 2}
SCHEMA = {"type": "object", "properties": {"item": {"type": "string"}, "price": {"type": "integer"}}}
PRICE = {
    "name": "price",
    "description": "The price of an item.",
    "parameters": {"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]},
}
client = OpenAI()


def converse(question, **more):
    """Answer a question with the tool's help."""
    messages = [{"role": "system", "content": "You sell."}, {"role": "user", "content": question}]
    while True:
        message = complete(messages, tools=[{"type": "function", "function": PRICE}], **more)
        messages.append(message)
        if not message.get("tool_calls"):
            return message["content"]
        for call in message["tool_calls"]:
            price = PRICES[json.loads(call["function"]["arguments"])["item"]]
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": str(price)})


def complete(messages, *, stream=False, **more):
    """The assistant's next message."""
    if not stream:
        choice = client.chat.completions.create(model="policy", messages=messages, **more).choices[0]
        return choice.message.model_dump(exclude_none=True)
    with client.chat.completions.stream(model="policy", messages=messages, **more) as events:
        for _ in events:
            pass
        return events.get_final_completion().choices[0].message.model_dump(exclude_none=True, exclude={"parsed"})


def structured():
    """An object in the form of a schema, asked for again until it is one."""
    form = {"type": "json_schema", "json_schema": {"name": "quote", "strict": True, "schema": SCHEMA}}
    messages = [{"role": "user", "content": "What does tea cost?"}]
    while True:
        message = complete(messages, response_format=form, temperature=0.2)
        try:
            return json.loads(message["content"])["price"]
        except ValueError:
            messages += [message, {"role": "user", "content": "That is no JSON."}]


def responses():
    """The tool again, by `/v1/responses`."""
    items = [{"role": "user", "content": "What does tea cost?"}]
    while True:
        answer = client.responses.create(
            model="policy", instructions="You sell.", input=items, tools=[{"type": "function", **PRICE}]
        )
        calls = [item for item in answer.output if item.type == "function_call"]
        if not calls:
            return answer.output_text
        items += answer.output
        for call in calls:
            price = PRICES[json.loads(call.arguments)["item"]]
            items.append({"type": "function_call_output", "call_id": call.call_id, "output": str(price)})


def instructions():
    """Two calls, each with a system prompt of its own."""
    texts = [
        complete([{"role": "system", "content": text}, {"role": "user", "content": "tea?"}])["content"]
        for text in ("Be brief.", "Be kind.")
    ]
    return " ".join(texts)


FEATURES = {
    "tools": lambda: converse("What does tea cost?"),
    "parallel": lambda: converse("What do tea and milk cost?"),
    "streaming": lambda: converse("What does tea cost?", stream=True),
    "structured": structured,
    "retries": structured,
    "instructions": instructions,
    "responses": responses,
}
answer = str(FEATURES[TASK["feature"]]())
print(answer, file=sys.stderr)
print(json.dumps({"reward": 1.0, "success": TASK["expected"] in answer}))
