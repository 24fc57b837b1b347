"""Transcripts of prompts: stored prompt tokens decoded, and cut into messages by role.

    prompt_ids, response_ids, is_context_start of a trajectory -> Transcriber -> messages before each response

Text is the decoded tokens, including special tokens: concatenated, the messages of a prompt are the prompt. Message
boundaries follow from the template's pieces and from the responses that a prompt repeats verbatim, never from searching
for markers in text written by a model or an environment.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

from pydantic import ValidationError
from transformers import PreTrainedTokenizerBase

from starpo.ragen.agents.prompting.earlier import EarlierResponses
from starpo.ragen.agents.prompting.parser import prefilled_tag
from starpo.ragen.agents.prompting.template import ChatPieces, derive_pieces
from starpo.ragen.agents.vision.image_table import FIRST_IMAGE_ID
from starpo.ragen.agents.vision.image_tokens import MARK, ImageTokens
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.core.errors import TemplateError
from starpo.ragen.envs.grammar import Tool

Role = Literal["system", "user", "assistant", "prompt"]
"""Role of a message. `system` is what the template puts before the first user message; `user` includes the tokens that
open and close its message and those that open the response. `prompt` is a whole prompt that does not match the
template."""

_ANY_TOOL = Tool("tool", "", {})

Content = tuple[Role, str, bool]
"""Role and text of a message, and whether it is new, that is, not a response that the prompt repeats."""


@dataclass(frozen=True)
class Message:
    """A part of a prompt.

    Attributes:
        role: Role of the speaker.
        text: Its tokens, decoded.
        num_tokens: Number of these tokens.
    """

    role: Role
    text: str
    num_tokens: int


class Transcriber:
    """Reads prompts of one tokenizer and one prompt configuration."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, agent: Mapping[str, Any]) -> None:
        """Derive the template's pieces; if that fails, every prompt is a single message.

        Args:
            tokenizer: Tokenizer of the policy.
            agent: Settings of the agent, as recorded by the run.
        """
        self._tokenizer = tokenizer
        self._pieces: ChatPieces | None = None
        self._earlier: list[EarlierResponses] = []  # as shown before a user message, and before results of tools
        self._user_opening: list[int] = []
        self._system_prompt = ""
        self._window_turns = 1
        self._opening_tag = self._earlier_tag = ""
        try:
            config = AgentConfig.model_validate(dict(agent))
            pieces = derive_pieces(tokenizer, config)
            derived = [pieces]
            if pieces.shown.is_rewritten:
                derived.append(derive_pieces(tokenizer, config, (_ANY_TOOL,), pieces.encoder))
        except (TemplateError, ValidationError):  # recorded by another release
            return
        self._pieces, self._earlier = pieces, [EarlierResponses(tokenizer, one, config) for one in derived]
        self._window_turns = config.max_turns if config.context == "full" else config.window_turns
        self._opening_tag = prefilled_tag(config)
        self._earlier_tag = self._opening_tag if pieces.shown.is_verbatim else ""
        common = _common_end(pieces.opening_ids, pieces.continuation_ids[1:])
        self._user_opening = list(pieces.opening_ids[len(pieces.opening_ids) - common :])
        self._system_prompt = config.system_prompt

    def decode(self, ids: Sequence[int]) -> str:
        """Decode tokens, including special tokens.

        An image with ids of its own (`ImageTable`) becomes its mark, together with the tokens around it.
        """
        parts = [(is_image, list(part)) for is_image, part in groupby(ids, lambda token: token >= FIRST_IMAGE_ID)]
        tokens: ImageTokens | None = getattr(self._tokenizer, "image_tokens", None)
        texts = []
        for number, (is_image, part) in enumerate(parts):
            if tokens is not None and len(parts) > 1:
                start = len(tokens.after_ids) if number > 0 else 0
                part = part[start : len(part) - (len(tokens.before_ids) if number + 1 < len(parts) else 0)]
            texts.append(MARK if is_image else self._decode(part))
        return "".join(texts)

    def _decode(self, ids: list[int]) -> str:
        return str(self._tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def read(self, turns: Sequence[Mapping[str, Any]]) -> list[list[Message]]:
        """Return the messages that each turn's prompt added to the context.

        Args:
            turns: Rows of dataset `turns` of one trajectory, in order.

        Returns:
            The messages of each turn; those of a turn that is not a context start follow all messages and responses
            since the last context start.
        """
        return [self._messages(turns, turn) for turn in range(len(turns))]

    @property
    def opening_tag(self) -> str:
        """Opening tag that every prompt ends with and responses omit; '' if there is none."""
        return self._opening_tag

    def contents(self, turns: Sequence[Mapping[str, Any]]) -> list[list[Content]] | None:
        """Return the same messages without the template's markup: rendered by the template, they give the prompt again.

        A system message is that of the settings; the template's default is left out, since the template writes it
        itself, together with the tools that it declares there.

        Args:
            turns: Rows of dataset `turns` of one trajectory, in order.

        Returns:
            The messages of each turn; responses that a prompt repeats are `assistant` and not new, and include the tag
            that the prompt puts before them. None if a prompt does not match the template.
        """
        by_turn: list[list[Content]] = []
        for turn, row in enumerate(turns):
            ids = list(row["prompt_ids"])
            if not ids:
                by_turn.append([])
                continue
            starts = bool(row["is_context_start"])
            responses = [
                list(earlier["response_ids"]) for earlier in turns[max(0, turn + 1 - self._window_turns) : turn]
            ]
            parts = self._parts(ids, responses) if starts else [("user", ids)]
            if self._pieces is None or parts is None:
                return None
            before = [] if starts else self._between(turns[turn - 1], ids)
            contents: list[Content] = []
            for number, (role, part) in enumerate(parts):
                if role == "assistant":
                    spoken = part[:-1] if part and part[-1] in self._pieces.stop_token_ids else part
                    contents.append(("assistant", self._earlier_tag + self.decode(spoken), False))
                    before = self._pieces.after_response(part)
                elif role == "system":
                    before = ids[len(part) : self._start(ids)]
                    contents += [("system", self._system_prompt, True)] if self._system_prompt else []
                else:
                    text = self._user_text(part, before, is_last=number == len(parts) - 1)
                    if text is None:
                        return None
                    contents.append(("user", text, True))
            by_turn.append(contents)
        return by_turn

    def _between(self, row: Mapping[str, Any], ids: list[int]) -> list[int]:
        """Return what the template puts between a turn's response and the text of the next prompt.

        Where the ids of a response are unknown, the next prompt tells by its first id whether they had an end token.
        """
        assert self._pieces is not None
        response = list(row["response_ids"])
        if response or not row["response"]:
            return self._pieces.after_response(response)
        end = self._pieces.continuation_ids[0]
        return self._pieces.after_response([] if ids[0] == end else [end])

    def _user_text(self, ids: list[int], before: list[int], *, is_last: bool) -> str | None:
        """Return the text between the template's pieces; None if the pieces are missing."""
        closing = self._earlier[0].generation_ids if is_last else self._earlier[0].repeat([]).before_ids
        end = len(ids) - len(closing)
        if ids[: len(before)] != before or ids[end:] != closing or end < len(before):
            return None
        return self.decode(ids[len(before) : end])

    def _messages(self, turns: Sequence[Mapping[str, Any]], turn: int) -> list[Message]:
        ids = list(turns[turn]["prompt_ids"])
        if not turns[turn]["is_context_start"]:
            return [self._message("user", ids)]
        in_sight = turns[max(0, turn + 1 - self._window_turns) : turn]
        parts = self._parts(ids, [list(row["response_ids"]) for row in in_sight])
        if parts is None:
            return [self._message("prompt", ids)]
        return [self._message(role, part) for role, part in parts if part]

    def _parts(self, ids: list[int], responses: list[list[int]]) -> list[tuple[Role, list[int]]] | None:
        """Split the prompt of a context start at the responses that it repeats; None if it does not match."""
        splits = (self._parts_with(earlier, ids, responses) for earlier in self._earlier)
        return next((parts for parts in splits if parts is not None), None)

    def _parts_with(
        self, earlier: EarlierResponses, ids: list[int], responses: list[list[int]]
    ) -> list[tuple[Role, list[int]]] | None:
        start = self._start(ids)
        if start is None:
            return None
        start -= len(self._user_opening)
        if not str(self._tokenizer.decode(ids[:start], skip_special_tokens=True)).strip():
            start = 0
        parts: list[tuple[Role, list[int]]] = [("system", ids[:start])]
        for response in responses:
            repeated = earlier.repeat(response)
            end = _find(ids, repeated.token_ids, start)
            if end is None:
                return None
            end += len(repeated.before_ids)
            parts += [("user", ids[start:end]), ("assistant", repeated.said_ids)]
            start = end + len(repeated.said_ids)
        return [*parts, ("user", ids[start:])]

    def _start(self, ids: list[int]) -> int | None:
        """Find where the text of the first user message begins; None if the prompt does not match the template.

        The opening is longer than `opening_ids` if the template declares tools there.
        """
        opening, opens_user = list(self._pieces.opening_ids) if self._pieces else [], self._user_opening
        if opening and ids[: len(opening)] == opening:
            return len(opening)
        place = _find(ids, opens_user, 0) if opens_user else None
        return None if place is None else place + len(opens_user)

    def _message(self, role: Role, ids: Sequence[int]) -> Message:
        return Message(role, self.decode(ids), len(ids))


def _common_end(one: Sequence[int], other: Sequence[int]) -> int:
    """Return the length of the common suffix, the tokens that open a user message in any position."""
    pairs = zip(reversed(one), reversed(other), strict=False)
    return next((length for length, (left, right) in enumerate(pairs) if left != right), min(len(one), len(other)))


def _find(ids: list[int], wanted: list[int], start: int) -> int | None:
    """Find the first occurrence of a token sequence at or after `start`; None if there is none."""
    for place in range(start, len(ids) - len(wanted) + 1):
        if ids[place : place + len(wanted)] == wanted:
            return place
    return None
