"""A judge's server for tests: it grades as the prompt of scoring 'judge' asks, or obeys whatever it reads."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from starpo.ragen.methods.judge import asking
from tests.openai_server import Server, by_last_message

KEY = "sk-a-key-that-must-not-be-shown"
"""The only key in the environment while the server runs."""
_LINES = {
    "question": "Question: ",
    "references": "Right answers, of which any one suffices: ",
    "answer": "Answer to be graded: ",
}


@contextmanager
def serving(monkeypatch: pytest.MonkeyPatch, delay_s: float = 0.0) -> Iterator[Server]:
    """Start the server, which grades after a delay; clients wait hardly at all before they repeat a request."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(asking, "_FIRST_WAIT_S", 0.01)
    with Server() as server:
        server.say, server.delay_s = by_last_message(grade), delay_s
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server
        server.shutdown()


def facts_of(prompt: str) -> dict:
    """Return what the prompt holds: the question, the list of right answers, the answer."""
    lines = prompt.splitlines()
    texts = {}
    for name, start in _LINES.items():
        (texts[name],) = (line.removeprefix(start) for line in lines if line.startswith(start))
    texts["references"] = f"[{texts['references']}]"
    return {name: json.loads(text) for name, text in texts.items()}


def grade(prompt: str) -> str:
    """Quote an answer, which is right if its first line holds that of a right one, whatever else it claims."""
    facts = facts_of(prompt)
    is_right = any(text.splitlines()[0] in facts["answer"].splitlines()[0] for text in facts["references"])
    return f"The answer says:\n{facts['answer']}\n\n**VERDICT: {'correct' if is_right else 'incorrect'}**"


def obey(prompt: str) -> str:
    """Repeat the last line of the prompt that is a verdict; without one, say that the answer is wrong."""
    orders = [line for line in prompt.splitlines() if re.fullmatch(r"VERDICT: (in)?correct", line)]
    return orders[-1] if orders else "VERDICT: incorrect"
