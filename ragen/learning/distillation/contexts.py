"""The teacher's contexts: the tokens of stored turns as the policy saw and sampled them, with hints between them.

    policy    [ prompt            | generation ] RESPONSE [ prompt ...
    teacher   [ prompt | HINT     | generation ] RESPONSE [ prompt ...      generation: the template's text before it

No token is removed and none is tokenised anew, so a response has the same tokens for both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from starpo.ragen.agents.prompting.context import ContextBuilder
from starpo.ragen.config.agent import AgentConfig
from starpo.ragen.core.errors import LearnerError
from starpo.ragen.learning.distillation.hints import Hints

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from starpo.ragen.agents.vision.image_table import ImageTable


@dataclass(frozen=True)
class TeacherContext:
    """Tokens that the teacher sees as one context, up to the last response token.

    Attributes:
        token_ids: Prompts, hints and responses in order. int64 [T]
        response_mask: Whether a token belongs to a response. bool [T]
    """

    token_ids: np.ndarray
    response_mask: np.ndarray


@dataclass(frozen=True)
class ScoredTurn:
    """A turn with a response.

    Attributes:
        trajectory_id: As in `turns`.
        group_id: As in `turns`.
        turn: As in `turns`.
        num_tokens: Tokens of the response.
        num_hint_tokens: Tokens of the hint in its prompt.
    """

    trajectory_id: str
    group_id: str
    turn: int
    num_tokens: int
    num_hint_tokens: int


class TeacherContexts:
    """Implements `learners.data.batches.Contexts`.

    Attributes:
        segments: The contexts.
        segment_start: Index of the first response token of each context. int64
        images: Images of the contexts; None if they are of text alone.
        turns: The turns with a response, in the order of their tokens.
    """

    def __init__(
        self,
        turns: pa.Table,
        images: "ImageTable | None" = None,
        hint_ids: Mapping[tuple[str, int], Sequence[int]] | None = None,
        generation_ids: Sequence[int] = (),
    ) -> None:
        """Build the contexts.

        Args:
            turns: Dataset `turns`, rows in any order.
            images: Images of the turns, if their `prompt_ids` have ids of the images' own.
            hint_ids: Trajectory and turn -> tokens of its hint.
            generation_ids: Tokens between a user's message and the response, before which hints stand.

        Raises:
            LearnerError: If a prompt with a hint does not end with those tokens, or has the hint already.
        """
        names = ["trajectory_id", "group_id", "turn", "is_context_start", "prompt_ids", "response_ids"]
        rows = turns.select(names).to_pylist()
        order = {row["trajectory_id"]: number for number, row in reversed(list(enumerate(rows)))}
        rows.sort(key=lambda row: (order[row["trajectory_id"]], row["turn"]))
        self.images, self.segments, self.turns = images, list[TeacherContext](), list[ScoredTurn]()
        ids, mask, before = list[int](), list[bool](), None
        for row in rows:
            trajectory_id, turn, response = row["trajectory_id"], row["turn"], row["response_ids"]
            if row["is_context_start"] or trajectory_id != before:
                self._close(ids, mask)
                ids, mask, before = [], [], trajectory_id
            hint = list((hint_ids or {}).get((trajectory_id, turn), ()))
            prompt = row["prompt_ids"]
            if hint:
                _check_hint(prompt, hint, generation_ids, trajectory_id, turn)
                place = len(prompt) - len(generation_ids)
                prompt = [*prompt[:place], *hint, *prompt[place:]]
            ids += [*prompt, *response]
            mask += [False] * len(prompt) + [True] * len(response)
            if response:
                self.turns.append(ScoredTurn(trajectory_id, row["group_id"], turn, len(response), len(hint)))
        self._close(ids, mask)
        counts = np.array([context.response_mask.sum() for context in self.segments], dtype=np.int64)
        self.segment_start = np.cumsum(counts) - counts

    @property
    def num_tokens(self) -> int:
        """Number of response tokens."""
        return sum(turn.num_tokens for turn in self.turns)

    def _close(self, ids: list[int], mask: list[bool]) -> None:
        response_mask = np.array(mask, dtype=bool)
        if response_mask.any():
            stop = int(np.flatnonzero(response_mask)[-1]) + 1
            self.segments.append(TeacherContext(np.array(ids[:stop], dtype=np.int64), response_mask[:stop]))


def hinted_contexts(
    turns: pa.Table,
    images: "ImageTable | None",
    hints: Hints,
    text: str,
    agent: AgentConfig,
    tokenizer: "PreTrainedTokenizerBase",
) -> TeacherContexts:
    """Return the contexts of a teacher that is shown hints.

    Args:
        turns: Dataset `turns`.
        images: Their images (`ragen.runs.stored_images.read_turns`).
        hints: What the teacher is told; empty for the policy's own contexts.
        text: Text of a hint, with the place of what it says.
        agent: Settings of the agent, for the chat template.
        tokenizer: The policy's.

    Raises:
        LearnerError: If a hint has no place, or the policy's prompt has it already.
    """
    if not hints:
        return TeacherContexts(turns, images)
    builder = ContextBuilder(tokenizer, agent, 1)
    ids = {hint: _ids(builder, text.replace("{hint}", hint)) for hint in dict.fromkeys(hints.values())}
    return TeacherContexts(
        turns, None, {place: ids[hint] for place, hint in hints.items()}, builder.earlier.generation_ids
    )


def _ids(builder: ContextBuilder, text: str) -> list[int]:
    writer = builder.encoder.writer()
    writer.message(text)
    return writer.finish()


def _check_hint(
    prompt: Sequence[int], hint: Sequence[int], generation_ids: Sequence[int], trajectory_id: str, turn: int
) -> None:
    where = f"trajectory '{trajectory_id}', turn {turn}"
    if list(prompt[len(prompt) - len(generation_ids) :]) != list(generation_ids):
        raise LearnerError(
            f"the prompt of {where} does not end with what the teacher's chat template writes before a response, so "
            "there is no place for a hint: set teacher.hint = 'none', or take a teacher with the policy's template"
        )
    text, part = (np.array(ids, dtype=np.int64).tobytes() for ids in (prompt, hint))
    place = text.find(part)
    while place >= 0 and place % 8:
        place = text.find(part, place + 1)
    if place >= 0 and turn == 0:  # later prompts may repeat responses, which may say anything
        raise LearnerError(
            f"the policy's own prompt of {where} contains the teacher's hint token by token, so the policy sees it, "
            "and nothing is left to learn from it: take it out of the prompt (agent.prompt), or set another "
            "teacher.hint_text"
        )
