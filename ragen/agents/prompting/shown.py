"""How a chat template shows the agent's earlier responses: as they were sent, written anew, or without reasoning.

    probes of the template -> `find_shown` -> ShownResponses: text of a response -> what later prompts show of it

What the template makes of a response is found by rendering a few of every kind, and checked on others: white space at
the ends of reasoning and answer, a tag twice, missing or never closed. A template that does anything else with one of
them has no such form.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import NamedTuple

ANSWER = "<answer>action probe</answer>"
"""The probe without reasoning."""
_THOUGHT = "reasoning probe"
RESPONSE = f"<think>{_THOUGHT}</think>{ANSWER}"
"""The probe that is like most responses."""
_KINDS = {
    ("some", True): RESPONSE,
    ("some", False): f"<think>{_THOUGHT}</think>",
    ("empty", True): f"<think></think>{ANSWER}",
    ("empty", False): "<think></think>",
    ("open", True): f"<think>{ANSWER}",
    ("none", True): ANSWER,
    ("none", False): "",
}
"""By the reasoning (never closed: 'open') and whether there is an answer, which is the whole text without reasoning."""
_INNER = (
    f"<think>\n \n {_THOUGHT} \n \n</think>\n \n {ANSWER}",
    f"<think>\n{_THOUGHT}\n</think>\n\n{ANSWER}",
    f"<think>{_THOUGHT}</think>{ANSWER}</think>{ANSWER}",
    f"{_THOUGHT}</think>{ANSWER}",
    f"<think>\n{_THOUGHT}",
    f"<think> </think>{ANSWER}",
    f"<think>\n\n</think>\n\n{ANSWER}",
)
_OUTER = (f"\n \n {ANSWER} \n \n", f"<think>{_THOUGHT}</think>\n \n {ANSWER} \n \n", f"<think>{_THOUGHT}</think> \n ")
PROBES = (*_KINDS.values(), *_INNER, *_OUTER)
"""Responses to be rendered between two user messages."""

_STRIPS: tuple[Callable[[str], str], ...] = (
    lambda text: text,
    lambda text: text if text.strip() else "",
    lambda text: text.lstrip("\n"),
    lambda text: text.strip("\n"),
    lambda text: text.rstrip(),
    lambda text: text.rstrip().lstrip("\n"),
    lambda text: text.lstrip(),
    lambda text: text.strip(),
)

Layout = tuple[str, str | None, str]
"""What the template writes before the reasoning, between it and the answer, and after that; None: no reasoning."""


class ShownPiece(NamedTuple):
    """Part of a shown response.

    Attributes:
        text: Its text.
        is_template: Whether the template wrote it.
    """

    text: str
    is_template: bool


@dataclass(frozen=True)
class ShownResponses:
    """What a template shows of earlier responses, between the user message before and the end of the response.

    Attributes:
        header: What it writes before every earlier response: the end of the user message, and the role.
        is_verbatim: Whether it shows a response as it was sampled.
        drops_thoughts: Whether it drops the reasoning.
        has_field: Whether it reads the reasoning of a message in `reasoning_content` alone, not in its text.
    """

    header: str
    is_verbatim: bool = True
    drops_thoughts: bool = False
    has_field: bool = False
    _layouts: Mapping[tuple[str, bool], Layout] = field(default_factory=dict)
    _strips: tuple[Callable[[str], str], ...] = ()

    @property
    def is_rewritten(self) -> bool:
        """Whether reasoning and answer of a response are taken apart."""
        return bool(self._layouts)

    def split(self, text: str) -> tuple[str | None, str]:
        """Return the reasoning (None without any) and the answer of a response, with the white space that is shown."""
        thought, answer = _split(text)
        if thought is None:
            return None, self._strips[2](answer)
        return self._strips[0](thought), self._strips[1](answer)

    def pieces(self, text: str) -> list[ShownPiece]:
        """Return what the template shows of a response, from the end of the user message to the end of the response."""
        if not self._layouts:
            return [ShownPiece(self.header, True), ShownPiece(text, False)]
        thought, answer = self.split(text)
        unclosed = "open" if "<think>" in answer else "none"
        kind = unclosed if thought is None else "some" if thought else "empty"
        before, between, after = self._layouts[kind, bool(answer)]
        pieces = [ShownPiece(before, True)]
        if thought and between is not None:
            pieces += [ShownPiece(thought, False), ShownPiece(between, True)]
        return [*pieces, ShownPiece(answer, False), ShownPiece(after, True)]

    def text(self, text: str) -> str:
        """Return the same as one text."""
        return "".join(piece.text for piece in self.pieces(text))


def message_of(text: str, has_field: bool) -> dict[str, str]:
    """Return a response as a message, its reasoning in a field of its own where the template reads it only there."""
    thought, answer = _split(text)
    if has_field and thought is not None:
        return {"role": "assistant", "reasoning_content": thought, "content": answer}
    return {"role": "assistant", "content": text}


def find_shown(bodies: Sequence[str], has_field: bool) -> ShownResponses | None:
    """Find how a template shows responses.

    Args:
        bodies: What it shows of each of `PROBES`, between the user message before and the end of the response.
        has_field: Whether their reasoning was in a field of its own.

    Returns:
        None if the template does something else with one of them.
    """
    shown = dict(zip(PROBES, bodies, strict=True))
    header = shown[ANSWER].partition(ANSWER)[0]
    sent_whole = [text for text in (*_KINDS.values(), *_INNER) if text]
    if not has_field and all(shown[text] == header + text for text in sent_whole):
        return ShownResponses(header)
    layouts = {kind: _layout(shown[text], *kind) for kind, text in _KINDS.items()}
    complete = {kind: layout for kind, layout in layouts.items() if layout is not None}
    if len(complete) < len(layouts):
        return None
    common = _common_start([layout[0] for layout in complete.values()]).partition("<think>")[0]
    drops = complete["some", True][1] is None
    for strips in product(_STRIPS, repeat=3):
        form = ShownResponses(common, False, drops, has_field, complete, strips)
        if all(form.text(text) == body for text, body in shown.items()):
            return form
    return None


def _split(text: str) -> tuple[str | None, str]:
    """Split as the templates do that take reasoning out of a message."""
    if "</think>" not in text:
        return None, text
    parts = text.split("</think>")
    return parts[0].split("<think>")[-1], parts[-1]


def _layout(body: str, thought: str, has_answer: bool) -> Layout | None:
    """Read the layout of a kind of response off its rendering; None if that has not what it should have."""
    expected = f"<think>{ANSWER}" if thought == "open" else ANSWER
    rest, answer, after = body.partition(expected) if has_answer else (body, "", "")
    if (has_answer and not answer) or ANSWER in after:
        return None
    if thought != "some" or _THOUGHT not in rest:
        return rest, None, after
    before, _, between = rest.partition(_THOUGHT)
    return before, between, after


def _common_start(texts: Sequence[str]) -> str:
    shortest = min(texts, key=len)
    return next((shortest[:n] for n, letter in enumerate(shortest) if any(t[n] != letter for t in texts)), shortest)


def same_role(one: str, other: str) -> bool:
    """Whether two texts before a response differ only in white space and in tags of reasoning."""
    return _role(one) == _role(other)


def _role(text: str) -> str:
    return "".join(text.replace("<think>", "").replace("</think>", "").split())
