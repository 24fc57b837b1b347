"""Makes the three logs of Inspect in this folder, with inspect-ai alone: `python make_inspect.py`, with 0.3.285."""

from pathlib import Path
from tempfile import mkdtemp

from inspect_ai import Task, eval
from inspect_ai.agent import react
from inspect_ai.dataset import Sample
from inspect_ai.model import ChatMessageUser, ContentImage, ContentText, ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import Score, choice, includes, match, mean, scorer
from inspect_ai.solver import generate, multiple_choice, solver
from inspect_ai.tool import ToolError, tool

HERE = Path(__file__).parent
PRICES = {"tea": 3, "milk": 2}
RED = "iVBORw0KGgoAAAANSUhEUgAAABAAAAAQCAIAAACQkWg2AAAAFklEQVR42mM4wcBAEmIY1TCqYfhqAAAdDcgBASPbeAAAAABJRU5ErkJggg=="


@tool
def price():
    async def execute(item: str) -> str:
        """Look up the price of an item.

        Args:
            item: Name of the item.
        """
        if item not in PRICES:
            raise ToolError(f"there is no {item}")
        return f"{item} costs {PRICES[item]}"

    return execute


@scorer(metrics=[mean()])
def num_calls():
    async def score(state, target):
        calls = sum(len(message.tool_calls or ()) for message in state.messages if message.role == "assistant")
        return Score(value=calls, explanation="calls of tools, also those that failed")

    return score


@solver
def breaking():
    async def solve(state, generate):
        if state.sample_id == "broken":
            raise RuntimeError("the scale is out of order")
        state = await generate(state)
        if state.sample_id == "late":
            raise RuntimeError("the shop <closed> early")
        return state

    return solve


def model(outputs):
    """Return a model that says what is prepared. Usage is prepared too: the mock would download a tokenizer."""
    remaining = iter(outputs)

    def respond(messages, tools, tool_choice, config):
        output = next(remaining)
        size = sum(len(message.text.split()) for message in messages)
        output.usage = ModelUsage(input_tokens=size, output_tokens=5, total_tokens=size + 5)
        return output

    return get_model("mockllm/model", custom_outputs=respond)


def call(name, **arguments):
    return ModelOutput.for_tool_call("mockllm/model", name, arguments)


def text(content):
    return ModelOutput.from_content("mockllm/model", content)


def shop():
    """Two samples in two epochs, an agent with tools, two scorers."""
    outputs = [
        *(call("price", item="tea"), call("submit", answer="3")),
        *(call("price", item="coffee"), call("price", item="milk"), call("submit", answer="4")),
        *(call("price", item="tea"), call("submit", answer="3")),
        *(call("price", item="milk"), call("submit", answer="2")),
    ]
    samples = [
        Sample(id="tea", input="What does tea cost?", target="3", metadata={"shelf": 1}),
        Sample(id="milk", input="What does milk cost?", target="2", metadata={"shelf": 2}),
    ]
    agent = react(prompt="You sell groceries.", tools=[price()])
    return Task(name="shop", dataset=samples, solver=agent, scorer=[includes(), num_calls()], epochs=2), outputs


def letters():
    """Three multiple-choice questions."""
    samples = [
        Sample(id=n, input=f"Which letter is number {n}?", choices=["A", "B", "C"], target="ABC"[n - 1])
        for n in (1, 2, 3)
    ]
    outputs = [text(f"ANSWER: {letter}") for letter in "ABB"]
    return Task(name="letters", dataset=samples, solver=multiple_choice(), scorer=choice()), outputs


def faults():
    """An image, errors before and after the first response, and a limit."""
    picture = [ContentText(text="Which colour?"), ContentImage(image=f"data:image/png;base64,{RED}")]
    samples = [
        Sample(id="picture", input=[ChatMessageUser(content=picture)], target="red"),
        Sample(id="broken", input="Weigh it.", target="1"),
        Sample(id="late", input="Weigh it again.", target="1"),
        Sample(id="long", input=[ChatMessageUser(content="Say it.")] * 3, target="much"),
    ]
    outputs = [text(word) for word in ("red", "red", "well", "much", "much")]
    solvers = [breaking(), generate()]
    return Task(name="faults", dataset=samples, solver=solvers, scorer=match(), message_limit=4), outputs


for name, form in (("shop", "eval"), ("letters", "json"), ("faults", "eval")):
    task, outputs = globals()[name]()
    folder = mkdtemp()
    (log,) = eval(
        task,
        model=model(outputs),
        log_format=form,
        log_dir=folder,
        max_samples=1,
        fail_on_error=False,
        display="none",
        log_model_api=False,
    )
    Path(log.location.removeprefix("file://")).rename(HERE / f"{name}.{form}")
